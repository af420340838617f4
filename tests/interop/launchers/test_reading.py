"""What several flags amount to, what is asked for, and what is refused."""

from pathlib import Path

import pytest

from costmodel import Plan, estimate, ledger, load_cluster, load_framework, load_model, simulate, timeline
from costmodel.interop.launchers import dialects, read_launch, resolve, write_launch
from costmodel.interop.launchers.dialects import DIALECTS
from costmodel.interop.launchers.pricing import allowed_config, catalogue_name
from costmodel.interop.launchers.values import UNSTATED, Meanings
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled, UnreadableFile

LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 "
    "--seq-length 8192 --position-embedding-type rope --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights "
    "--disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --vocab-size 128256 --bf16 --micro-batch-size 1 "
    "--global-batch-size 64 --use-distributed-optimizer "
)


def test_a_command_line_costs_what_its_plan_costs():
    launch = read_launch(
        f"torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py {LLAMA} --tensor-model-parallel-size 2 --sequence-parallel"
    )
    model, plan, software, *_ = resolve(launch)
    assert model.parameters == load_model("llama3-8b").parameters
    wanted = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4)
    cluster = load_cluster("dgx-h100", gpus=8)
    ours = estimate(model, cluster, plan, software).step_time
    assert ours == pytest.approx(
        estimate(load_model("llama3-8b"), cluster, wanted, software).step_time, rel=1e-9
    )


def test_dashes_and_underscores_and_equals_signs_are_the_same():
    texts = (
        "--tensor-model-parallel-size 4\n",
        "--tensor_model_parallel_size 4\n",
        "--tensor-model-parallel-size=4\n",
    )
    launches = [read_launch(LLAMA + text) for text in texts]
    assert {launch.plan_fields["tensor_parallel"] for launch in launches} == {4}


def test_two_values_of_a_flag_are_a_conflict_that_names_both():
    launch = read_launch(LLAMA + "--micro-batch-size 2")
    assert launch.plan_fields["micro_batch"] is None
    assert launch.conflicts == ("--micro-batch-size 1 and --micro-batch-size 2 (micro-batch)",)
    with pytest.raises(CostModelError, match=r"--micro-batch-size 1 and --micro-batch-size 2 \(micro-batch\)"):
        resolve(launch, gpus=8)
    settled = read_launch(LLAMA + "--micro-batch-size 2", settings={"micro-batch-size": "2"})
    assert settled.conflicts == () and settled.plan_fields["micro_batch"] == 2


def test_two_flags_that_exclude_each_other_are_a_conflict():
    launch = read_launch(LLAMA + "--fp16")
    assert any("--bf16" in conflict and "--fp16" in conflict for conflict in launch.conflicts)
    assert read_launch(LLAMA + "--fp16", settings={"dtype": "fp16"}).conflicts == ()


def test_variables_are_asked_for_by_name_and_taken():
    text = LLAMA + "--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP"
    launch = read_launch(text)
    assert launch.unresolved == {
        "--tensor-model-parallel-size": "${TP}",
        "--pipeline-model-parallel-size": "$PP",
    }
    with pytest.raises(CostModelError, match=r"settings=\{'TP': .*settings=\{'PP': "):
        resolve(launch, gpus=8)
    by_variable = read_launch(text, settings={"TP": "4", "PP": "2"})
    by_flag = read_launch(
        text, settings={"tensor-model-parallel-size": "4", "pipeline-model-parallel-size": "2"}
    )
    by_field = read_launch(text, settings={"TP": "4", "pipeline-model-parallel-size": "2"})
    for one in (by_variable, by_flag, by_field):
        assert (one.plan_fields["tensor_parallel"], one.plan_fields["pipeline_parallel"], one.unresolved) == (4, 2, {})


def test_a_setting_that_nothing_knows_is_refused_with_what_it_might_be():
    with pytest.raises(CostModelError, match="tensor_parallel"):
        read_launch(LLAMA, settings={"tensor_paralel": "4"})
    with pytest.raises(InvalidValue, match="micro"):
        read_launch(LLAMA, settings={"micro-batch-size": "lots"})


@pytest.mark.parametrize(("field", "text", "value"), [
    ("batching", "packed", "packed"), ("dispatcher", "deduplicated", "deduplicated"), ("recompute", "2", 2),
    ("loss", "fused", "fused"), ("context_communication", "ring", "ring"), ("optimizer_offload", "0.5", 0.5),
    ("cuda_graphs", "on", True), ("zero_stage", "2", 2),
    ("rank_order", "tensor,context,pipeline,data", ("tensor", "context", "pipeline", "data")),
])  # fmt: skip
def test_every_field_of_a_plan_can_be_set_beside_a_file(field, text, value):
    assert getattr(read_launch(LLAMA, gpus=8, settings={field: text}).plan, field) == value


def test_a_script_gives_its_own_variables_but_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    script = tmp_path / "train.sh"
    script.write_text(
        f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nTP=2\ntouch {marker}\nMODEL_ARGS=(\n  {LLAMA}\n)\n"
        'torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py "${MODEL_ARGS[@]}" --tensor-model-parallel-size $TP | tee log\n'
    )
    launch = read_launch(script)
    assert launch.plan_fields["tensor_parallel"] == 2 and launch.plan_fields["global_batch"] == 64 and launch.gpus == 8
    assert not marker.exists()


def test_a_pipeline_layout_gives_the_chunks_of_a_rank():
    launch = read_launch(
        LLAMA + "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*3|(tt|)*13m|L"
    )
    assert launch.plan_fields["virtual_stages"] == 4  # sixteen stages
    uneven = read_launch(LLAMA + "--pipeline-model-parallel-size 3 --num-layers-per-virtual-pipeline-stage 5")
    assert uneven.conflicts


@pytest.mark.parametrize(("activation", "clamped"), [("--quick-geglu", True), ("--swiglu", None)])
def test_limits_on_an_activations_inputs_are_its_own_kernels_but_of_swiglu(activation, clamped):
    launch = read_launch(LLAMA.replace("--swiglu", activation) + "--activation-func-clamp-value 7.0")
    assert launch.model_described.get("clamped_activation") is clamped
    written = write_launch("megatron", Plan(global_batch=64, seq_len=4096, data_parallel=8), load_model("gpt-oss-20b"))
    assert read_launch(written, gpus=8, dialect="megatron").model.clamped_activation


def test_a_trainers_file_and_its_deepspeed_json_are_one_run(tmp_path):
    trainer, config = tmp_path / "sft.yaml", tmp_path / "ds.json"
    trainer.write_text("model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
                       "bf16: true\nmax_length: 4096\ndeepspeed: ds.json\n")  # fmt: skip
    alone = read_launch(trainer)
    assert "zero_stage" in alone.assumed and any("ds.json" in note for note in alone.notes)
    config.write_text(
        '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}'
    )
    both = read_launch([trainer, config], gpus=8)
    assert both.plan_fields["zero_stage"] == 2 and both.plan_fields["global_batch"] == 64 and both.framework == "trl"
    config.write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}')
    assert read_launch([trainer, config], gpus=8).conflicts


def test_no_path_that_a_file_names_is_opened_but_the_config_beside_it(tmp_path):
    shape = tmp_path / "mine" / "config.json"
    shape.parent.mkdir()
    shape.write_text("{}")
    file = tmp_path / "run.yaml"
    file.write_text("base_model: mine\n")
    assert allowed_config(file, "mine") == shape.resolve()
    with pytest.raises(UnreadableFile):
        allowed_config(file, "../outside")
    with pytest.raises(UnreadableFile):
        allowed_config(file, "/etc")


@pytest.mark.parametrize(("name", "entry"), [
    ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"), ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
    ("hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama3.1-405b"), ("llama3 70B", "llama3-70b"),
    ("gpt_oss_20b", "gpt-oss-20b"), ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"), ("deepseek-ai/DeepSeek-V3", "deepseek-v3"), ("llama2_7b", "llama2-7b"),
    ("nobody/knows-7b", None), ("", None),
])  # fmt: skip
def test_models_are_found_by_the_names_that_frameworks_give_them(name, entry):
    assert catalogue_name(name) == entry


def test_what_is_not_modelled_is_refused_with_a_word():
    with pytest.raises(NotModelled, match="ademamix"):
        resolve(read_launch(LLAMA + "--optimizer ademamix"), gpus=8)


def test_weights_that_a_file_sends_to_the_host_lie_there():
    launch = read_launch('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_batch_size": 8}\n',
                         settings={"seq_len": "128"})  # fmt: skip
    assert resolve(launch, model=load_model("llama3-8b"), gpus=8).plan.parameter_offload == 1.0


def test_deepspeeds_own_default_of_automatic_tensor_parallelism_is_none():
    launch = read_launch('{"tensor_parallel": {"autotp_size": 0}, "train_batch_size": 8}\n', gpus=8)
    assert (launch.plan_fields["tensor_parallel"], launch.plan_fields["data_parallel"]) == (1, 8)


def test_nothing_that_is_missing_is_guessed():
    with pytest.raises(CostModelError, match="GPUs is not stated"):
        resolve(read_launch(LLAMA))
    with pytest.raises(CostModelError, match="no model"):
        resolve(read_launch("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n"))
    with pytest.raises(CostModelError, match="no known framework"):
        read_launch("colour: red\nshape: round\n")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_table_says_each_flag_once_and_where_it_is_from(dialect):
    spellings = [spelling for row in dialect.rows if row.field for spelling in row.flags.split()]
    twice = {one for one in spellings if spellings.count(one) > 1}
    assert not twice
    assert "@" in dialect.about.source or "." in dialect.about.source
    assert not {*spellings} & dialect.irrelevant
    assert not dialect.irrelevant & dialect.unpriced


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_word_that_is_written_is_read_as_what_it_says(dialect):
    for row in dialect.rows:
        if isinstance(row.unit, Meanings):
            meanings = [meaning for meaning in row.unit.words.values() if meaning is not UNSTATED]
            assert [row.unit(row.unit.said(meaning)) for meaning in meanings] == meanings, row.flags


def test_every_data_file_of_a_dialect_is_read():
    folder = Path(dialects.__file__).parent
    names = {dialect.name.replace("-", "_") for dialect in DIALECTS}
    also = {other for dialect in DIALECTS for others in dialect.about.under.values() for other in others}
    assert {file.stem for file in folder.glob("*.toml")} == names | also


@pytest.mark.parametrize(
    "flag", ["--tensor-model-parallel-size", "--global-batch-size", "--seq-length", "--hidden-size"]
)
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1e400", "9" * 40])
def test_a_number_that_cannot_be_is_refused_by_the_flags_name(flag, value):
    with pytest.raises(InvalidValue, match=flag):
        read_launch(LLAMA + f"{flag} {value}")


def test_megatrons_flags_are_known_in_yaml_too():
    text = (
        "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --bf16: true\n"
    )
    text += "  --tensor-model-parallel-size: 2\n  --seq-length: 1024\nENV_VARS:\n  NCCL_ALGO: Ring\n"
    launch = read_launch(text)
    assert launch.framework == "megatron-lm" and launch.unknown == ()
    fields = launch.plan_fields
    assert (fields["tensor_parallel"], fields["seq_len"], fields["dtype"]) == (2, 1024, "bf16")


def test_overrides_on_a_command_line_are_read_as_the_file_would_be():
    nemo = read_launch(
        "nemo llm pretrain --factory llama3_8b trainer.num_nodes=2 trainer.devices=8 data.global_batch_size=512"
    )
    assert (nemo.framework, nemo.model_described, nemo.gpus) == ("nemo", "llama3_8b", 16)
    assert nemo.plan_fields["global_batch"] == 512
    tune = read_launch("tune run --nproc_per_node 8 full_finetune_distributed batch_size=2 tokenizer.max_seq_len=4096 "
                       "enable_activation_checkpointing=True")  # fmt: skip
    assert (tune.framework, tune.plan_fields["micro_batch"], tune.plan_fields["recompute"]) == ("torchtune", 2, "full")
    trainer = read_launch(
        "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 4 "
        "--fsdp 'full_shard auto_wrap' --bf16 --block_size 2048"
    )
    assert (trainer.framework, trainer.plan_fields["zero_stage"], trainer.plan_fields["seq_len"]) == (
        "transformers",
        3,
        2048,
    )


def test_a_misspelt_flag_gets_a_hint():
    launch = read_launch(LLAMA + "--tensor-model-paralel-size 4")
    assert launch.unknown == ("--tensor-model-paralel-size",)
    assert launch.plan_fields["tensor_parallel"] == launch.assumed["tensor_parallel"] == 1
    assert any("did you mean tensor-model-parallel-size?" in note for note in launch.notes)


def test_a_folder_is_no_launch_file(tmp_path):
    with pytest.raises(UnreadableFile, match="a folder"):
        read_launch(tmp_path)


def test_a_launch_is_taken_by_every_verb_as_the_plan_written_by_hand_is():
    launch = read_launch(f"{LLAMA} --tensor-model-parallel-size 2 --sequence-parallel", gpus=8)
    cluster = load_cluster("dgx-h100", gpus=8)
    by_hand = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, data_parallel=4, sequence_parallel=True)
    model = load_model("llama3-8b")
    assert isinstance(launch.plan, Plan) and launch.model.parameters == model.parameters
    assert estimate(launch.model, cluster, launch.plan, launch.software).step_time == pytest.approx(
        estimate(model, cluster, by_hand).step_time, rel=1e-9
    )
    for verb in (simulate, ledger, timeline):
        verb(launch.model, cluster, launch.plan, launch.software)


def test_what_a_launch_lacks_is_said_by_what_needs_it():
    launch = read_launch(LLAMA)
    assert launch.model.layers == 32  # whose GPUs nobody needs
    with pytest.raises(CostModelError, match="number of GPUs is not stated"):
        launch.plan  # noqa: B018
    nameless = read_launch("--micro-batch-size 1 --global-batch-size 8 --seq-length 2048 --bf16 --num-layers $L", gpus=8)
    assert nameless.plan.data_parallel == 8  # whose shape nobody needs
    with pytest.raises(CostModelError, match=r"settings=\{'L': "):
        nameless.model  # noqa: B018
    with pytest.raises(CostModelError, match="conflict"):
        read_launch(LLAMA + "--fp16", gpus=8).plan  # noqa: B018


POD = """
      template:
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch
              env: [{name: BATCH, value: "2"}]
              command: %s
              resources: {limits: {nvidia.com/gpu: 8}}
"""
JOBS = {
    "workers": (
        "kubeflow.org/v1", "PyTorchJob", "  nprocPerNode: '8'\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 4", 32),
    "a master": ("kubeflow.org/v1", "PyTorchJob", "  pytorchReplicaSpecs:\n    Master:\n      replicas: 1", 8),
    "pods": ("batch/v1", "Job", "  parallelism: 2\n  x:\n    y:\n", 16),
}
COMMANDS = ('[torchrun, sft.py, %s, --per_device_train_batch_size, $(BATCH)]',
            '[bash, -c, "cd /work && pip install trl && torchrun sft.py %s --per_device_train_batch_size $BATCH"]')


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_of_kubernetes_is_the_line_that_its_containers_run(job, command, tmp_path):
    version, kind, spec, gpus = JOBS[job]
    flags = ["--model_name_or_path", "Qwen/Qwen2.5-7B", "--bf16", "--max_length", "2048"]
    text = command % (", " if command.startswith("[torchrun") else " ").join(flags)
    file = tmp_path / "job.yaml"
    file.write_text(f"apiVersion: {version}\nkind: {kind}\nspec:\n{spec}{POD % text}", encoding="utf-8")
    line = f"torchrun --nproc_per_node 8 --nnodes {gpus // 8} sft.py {' '.join(flags)} --per_device_train_batch_size 2"
    found, wanted = read_launch(file), read_launch(line)
    assert (found.plan_fields, found.model_described) == (wanted.plan_fields, wanted.model_described)
    assert (found.gpus, found.unknown) == (gpus, ())


def test_a_manifest_that_starts_nothing_is_no_launch_file(tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n", encoding="utf-8")
    with pytest.raises(CostModelError, match="no known framework's launch file"):
        read_launch(file)


@pytest.mark.parametrize(("text", "ends", "unpriced"), [
    ("megatron sft --model Qwen/Qwen3-30B-A3B --max_length 4096 --decoder_first_pipeline_num_layers 25", (25, None), ()),
    (f"torchrun pretrain_gpt.py {LLAMA} --decoder-first-pipeline-num-layers 17 --decoder-last-pipeline-num-layers 15",
     (17, 15), ()),
    ("megatron sft --model Qwen/Qwen3-30B-A3B --max_length 4096 --decoder_first_pipeline_num_layers 25 "
     "--virtual_pipeline_model_parallel_size 2", (None, None), ("--decoder_first_pipeline_num_layers 25",)),
])  # fmt: skip
def test_layers_of_a_pipelines_ends_are_read_and_written(text, ends, unpriced):
    found = read_launch(f"{text} --pipeline_model_parallel_size 2", gpus=8)
    names = "first_stage_layers", "last_stage_layers"
    assert (tuple(found.plan_fields.get(name) for name in names), found.unpriced) == (ends, unpriced)
    if not unpriced:
        assert tuple(getattr(found.plan, name) for name in names) == ends
        written = write_launch("megatron", found.plan, found.model)
        assert [f"--decoder-{end}-pipeline" in written for end in ("first", "last")] == [one is not None for one in ends]


@pytest.mark.parametrize(("flag", "dropped"), [("--lora_dropout 0", False), ("--lora_dropout 0.05", True), ("", None)])
def test_a_dropout_before_adapters_is_priced_as_it_is_said(flag, dropped):
    found = read_launch(f"torchrun --nproc_per_node 8 sft.py --use_peft --lora_r 16 --bf16 {flag}")
    assert found.plan_fields.get("adapter_dropout") is dropped and not found.unpriced and not found.unknown


@pytest.mark.parametrize(("text", "dropped"), [
    # hiyouga/LLaMA-Factory@00577a8 src/llamafactory/hparams/finetuning_args.py: 0; modelscope/ms-swift@0bb3103
    # swift/arguments/tuner_args.py: 0.05
    ("llamafactory-cli train --stage sft --model_name_or_path meta-llama/Llama-3.1-8B --finetuning_type lora", False),
    ("swift sft --model Qwen/Qwen2.5-7B --tuner_type lora", None),
    ("megatron sft --model Qwen/Qwen2.5-7B --tuner_type lora --lora_dropout 0", False),
])  # fmt: skip
def test_a_dropout_that_no_file_states_is_the_softwares_own(text, dropped):
    found = read_launch(text, gpus=8)
    assert found.plan_fields.get("adapter_dropout") is dropped
    assert dropped is False or load_framework(found.software).adapter_dropout


@pytest.mark.parametrize(("flags", "told"), [
    ("--model Qwen/Qwen2.5-7B", 1), ("--model_name_or_path Qwen/Qwen2.5-7B --bf16", 0),
    ("--model Qwen/Qwen2.5-7B --seq-length 4096", 0),
])  # fmt: skip
def test_one_flag_that_many_programs_have_is_said_to_tell_none(flags, told):
    found = read_launch(f"python -m torch.distributed.run --nproc-per-node=8 finetune.py {flags}")
    assert sum("alone tells no framework" in note for note in found.notes) == told
