"""Measured rows become the models, clusters, plans and frameworks that they describe."""

from __future__ import annotations

import csv
import dataclasses
import json
import re

import pytest

import costmodel
from calibration.data.cases import case_of, cases_of, framework_of, is_modelled, plan_of
from calibration.data.datasets import DATASETS, STACKS, Dataset, dispatcher_of, memory_kind, untimed
from calibration.data.recipes import NOTHING, RELEASES, Recipe, graphs_of, recipe_of
from calibration.data.reference import DEFAULT_FOLDER, default_files
from calibration.data.runs import Run, read_runs, usable
from calibration.fit.problem import cluster_name, fabric_of
from calibration.validate.command import LEAST_PREDICTED, QUOTED
from calibration.validate.predictions import columns_of, evaluated, logged_memory
from costmodel import estimate
from costmodel.text.errors import CostModelError, NotModelled

FILES = default_files()
KORTHIKANTI = read_runs(QUOTED / "korthikanti2022_table5.csv")


def changed(run: Run, **cells: str) -> Run:
    """A row with some cells changed, numbers too."""
    numbers = {name: float(cell) for name, cell in cells.items() if cell and name in run.number}
    kept = {name: value for name, value in run.number.items() if cells.get(name, "kept")}
    return dataclasses.replace(run, text={**run.text, **cells}, number={**kept, **numbers})


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_usable_rows_of_the_reference_folder_become_cases_or_are_of_a_kind_that_is_not_modelled(path):
    rows = list(usable(read_runs(path)))
    cases, skipped = cases_of(rows)
    assert rows
    assert len(cases) + sum(map(len, skipped.values())) == len(rows)
    assert len(cases) >= LEAST_PREDICTED * sum(map(is_modelled, rows)), skipped


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_keep_the_degrees_and_sizes_of_their_rows(path):
    cases, _ = cases_of(list(usable(read_runs(path))))
    for case in cases:
        number, plan = case.run.number, case.plan
        assert plan.gpus == number["n_gpus"] == case.cluster.gpus, case.run.label
        assert plan.tensor_parallel == number.get("tp", 1), case.run.label
        assert plan.pipeline_parallel == number.get("pp", 1), case.run.label
        assert plan.global_batch == number["global_batch"], case.run.label
        assert case.model.layers == number["n_layers"], case.run.label
        assert case.model.hidden == number["hidden"], case.run.label
        measured = case.seconds is not None or case.peak_bytes is not None or case.run.flag("usable_oom")
        assert measured or case.waited or untimed(case.run), case.run.label


@pytest.mark.parametrize("file", sorted(path.name for path in QUOTED.glob("*.csv")))
def test_every_quoted_row_is_a_case_of_the_size_it_states(file):
    runs = read_runs(QUOTED / file)
    cases, skipped = cases_of(runs)
    assert not skipped
    for case in cases:
        assert case.model.parameters == pytest.approx(case.run.number["n_params"], rel=0.06), case.run.label
        assert case.cluster.device.name == "a100-sxm-80gb"
        assert case.framework.name == "megatron-lm-2021"
        assert case.seconds == case.run.number["step_time_s"]


def test_a_row_says_recompute_and_sequence_parallelism():
    full, selective = (case_of(run).plan for run in KORTHIKANTI[2:4])
    assert (full.recompute, full.sequence_parallel) == ("full", False)
    assert (selective.recompute, selective.sequence_parallel) == ("selective", True)
    assert selective.virtual_stages == 3


def test_every_stack_has_a_framework_profile():
    for name in STACKS:
        assert costmodel.load_framework(name).name == name


def test_a_missing_data_parallel_degree_follows_from_the_gpus():
    run = changed(KORTHIKANTI[2], dp="", tp="4")
    assert case_of(run).plan.data_parallel == 2


def test_the_part_of_a_device_is_read_from_the_sources_words():
    run = changed(KORTHIKANTI[0], gpu_id="v100-sxm-32gb", compute_dtype="fp16")
    assert case_of(changed(run, gpu="V100-SXM3-32GB (DGX-2)")).cluster.device.name == "v100-sxm3-32gb"
    assert case_of(changed(run, gpu="V100-SXM2-32GB")).cluster.device.name == "v100-sxm-32gb"


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"gpu_id": "abacus"}, "abacus"),
        ({"n_layers": ""}, "n_layers"),
        ({"micro_batch": "1.5"}, "micro_batch"),
        ({"compute_dtype": "int8"}, "compute_dtype"),
        ({"compute_dtype": ""}, "compute_dtype"),
        ({"dp": "3"}, "n_gpus"),
    ],
)
def test_a_row_that_is_no_run_is_refused_with_a_reason(cells, named):
    run = changed(KORTHIKANTI[0], **cells)
    with pytest.raises(CostModelError) as caught:
        case_of(run)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yafsdps_runs_are_hugging_faces_trainer_in_32_bit_states():
    """yandex/YaFSDP patches/transformers.diff: bf16 parameters are gathered, gradients are summed in fp32."""
    run = changed(KORTHIKANTI[0], dataset="yafsdp", stack="fsdp1", framework="PyTorch FSDP")
    framework = framework_of(run)
    assert framework.name == "hf-fsdp" and framework.reduce_bytes == framework.gradient_bytes == 4.0
    assert framework.parameter_bytes + framework.optimizer_bytes == 12.0  # 32-bit weights, which train, and two moments


def test_refused_rows_are_kept_by_reason():
    runs = [changed(run, gpu_id="abacus") for run in KORTHIKANTI[:2]] + KORTHIKANTI[2:]
    cases, skipped = cases_of(runs)
    assert len(cases) == 6
    ((reason, labels),) = skipped.items()
    assert "abacus" in reason
    assert labels == ["korthikanti2022_table5.csv row 1", "korthikanti2022_table5.csv row 2"]


def with_notes(run: Run, **arguments: object) -> Run:
    """A row of Megatron-Core's tests that quotes its arguments."""
    quoted = json.dumps({name.replace("_", "-"): value for name, value in arguments.items()})
    return changed(
        run, notes=quoted, stack="megatron-core-ci", dataset="megatron_ci_golden", ffn_hidden="", n_params="",
        attention_kind="",
    )  # fmt: skip


def test_arguments_in_the_notes_say_which_attention_runs():
    kinds = [
        case_of(with_notes(KORTHIKANTI[3], **arguments)).plan.attention
        for arguments in (
            {"transformer_impl": "transformer_engine"},
            {"transformer_impl": "transformer_engine", "attention_backend": "unfused"},
            {"transformer_impl": "transformer_engine", "attention_backend": "flash"},
            {"transformer_impl": "local"},
        )
    ]
    assert kinds == [None, "fused-softmax", "flash", "fused-softmax"]


def test_arguments_in_the_notes_say_the_shape():
    run = changed(with_notes(
        KORTHIKANTI[0], transformer_impl="transformer_engine", swiglu=True, position_embedding_type="rope",
        untie_embeddings_and_output_weights=True, moe_ffn_hidden_size=1024, moe_shared_expert_intermediate_size=512,
        moe_layer_freq="([0]*1+[1]*47)", moe_router_topk=4, multi_latent_attention=True, kv_lora_rank=64, qk_head_dim=16,
        qk_pos_emb_head_dim=8, v_head_dim=16, q_lora_rank=192, mtp_num_layers=1,
    ), n_experts="8", ep="1")  # fmt: skip
    run.number["n_experts"] = 8.0
    model = case_of(run).model
    assert model.gated
    assert not model.tied_embeddings
    assert model.learned_positions == 0
    assert (model.experts, model.experts_per_token, model.expert_feed_forward) == (8, 4, 1024)
    assert (model.shared_expert_feed_forward, model.dense_layers, model.prediction_layers) == (512, 1, 1)
    assert (model.query_latent, model.kv_latent, model.rope_head_dim, model.head_dim) == (192, 64, 8, 24)
    assert model.value_head_dim == 16


def test_layers_with_experts_in_turns_are_refused():
    run = with_notes(KORTHIKANTI[0], moe_layer_freq="([0,1]*24)")
    run.number["n_experts"] = 8.0
    with pytest.raises(NotModelled, match="moe-layer-freq"):
        case_of(run)


@pytest.mark.parametrize("arguments", [{"kv_channels": "many"}, {"kv_channels": None}, {"moe_layer_freq": 2}])
def test_arguments_that_can_not_be_read_are_refused_by_name(arguments):
    run = with_notes(KORTHIKANTI[0], **arguments)
    run.number["n_experts"] = 8.0
    with pytest.raises(CostModelError, match=next(iter(arguments)).replace("_", "-")):
        case_of(run)


def test_experts_are_split_as_their_layer_unless_the_run_is_named_otherwise():
    found = []
    for name in ("gpt3_te_8experts", "gpt3_te_8experts_etp1"):
        run = changed(with_notes(KORTHIKANTI[0], moe_router_topk=1), model_name=name)
        run.number.update(n_experts=8.0, ep=2.0, dp=run.number.get("dp", 1.0))
        found.append(plan_of(run, framework_of(run)).expert_tensor_parallel)
    assert found == [run.number["tp"], 1]


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_a_llama_that_states_its_count_is_gated_and_tied_where_that_gives_it():
    """Untied and not gated gives the same count, 1,342,177,280, but is no Llama."""
    runs = read_runs(next(path for path in FILES if path.stem == "nanotron_ultrascale"))
    model = case_of(next(run for run in runs if run.number["hidden"] == 2048)).model
    assert model.gated
    assert model.tied_embeddings
    assert model.parameters == pytest.approx(1_342_177_280, rel=1e-3)


@pytest.mark.parametrize("first_logs", [False, True])
@pytest.mark.parametrize("kind", ["allocated", "reserved", "process"])
def test_memory_is_that_of_the_stage_whose_rank_logs_it(first_logs, kind, monkeypatch):
    differing = {"recompute_kind": "full", "vocab": "8000000", "memory_kind": kind, "vpp": "1", "compute_dtype": "bf16"}
    case = case_of(changed(KORTHIKANTI[2], **differing))
    if first_logs:
        monkeypatch.setitem(DATASETS, case.run.text["dataset"], Dataset(logging_stage=0))
    columns = columns_of([case])
    found = float(logged_memory([case], columns, evaluated(columns).memory)[0])
    bill = estimate(case.model, case.cluster, case.plan, case.framework).memory
    logged = bill.stages[0] if first_logs else max(bill.stages, key=lambda one: one.total)
    allocated = logged.total - logged.parts.overhead
    passing = allocated - logged.parts.weights - logged.parts.gradients - logged.parts.optimizer
    reserved = allocated + passing * case.framework.constants.memory.fragmentation
    assert found == pytest.approx({"allocated": allocated, "reserved": reserved, "process": logged.total}[kind])
    assert (logged.stage == 0) is first_logs


def named(file: str, row: int) -> Run:
    """A row of the reference folder."""
    path = next(path for path in FILES if path.match(file))
    return next(run for run in read_runs(path) if int(run.text["row"]) == row)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(("row", "chunks", "sequence"), [
    (307, 10, None), (308, 20, None), (311, 1, False), (300, 20, None), (352, 5, None),
])  # fmt: skip
def test_rows_of_nemo_s_launcher_have_what_its_scripts_run(row, chunks, sequence):
    """NVIDIA/NeMo-Framework-Launcher@26e42fa examples/peft/llama/h100/*.sh, launcher_scripts/conf/training/llama/llama2_70b.yaml;
    what a table states itself comes first."""
    run = named("runs/nvidia_perf.csv", row)
    plan = plan_of(run, framework_of(run))
    assert (plan.virtual_stages, plan.sequence_parallel) == (chunks, sequence)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(("row", "moved"), [(5, 36.0), (13, 39.2), (15, 0.0)])
def test_weights_under_autocast_are_cast_and_their_gradients_copied(row, moved):
    """One micro-batch and five a step; llm.c's weights are in 16 bits."""
    assert framework_of(named("runs2/modded_nanogpt.csv", row)).weight_traffic == pytest.approx(moved)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_a_table_s_row_runs_the_recipe_of_its_plan():
    """NVIDIA-NeMo/Megatron-Bridge@067f987df0 src/megatron/bridge/perf_recipes: what its tables leave out."""
    plan = case_of(named("runs/nvidia_perf.csv", 43)).plan  # DeepSeek-V3 on 256 GB200
    assert (plan.recompute, plan.dispatcher, plan.overlap_experts) == ("latent-projections", "deduplicated", True)
    whole = case_of(named("runs/nvidia_perf.csv", 244)).plan  # Llama 3 8B on 8 GB200: one graph of an iteration
    assert whole.cuda_graphs
    assert whole.overlap_tensor is False and whole.graph_modules is None
    fused = case_of(named("runs2/nvidia_perf.csv", 9)).plan  # Qwen3 30B on 8 GB200, whose recipe overlaps inside a call
    assert fused.cuda_graphs and fused.fused_experts and fused.overlap_experts and fused.graph_modules is None
    assert case_of(named("runs2/nvidia_perf.csv", 430)).plan.overlap_experts  # "EP overlap"
    assert not case_of(named("runs/nvidia_perf.csv", 77)).plan.cuda_graphs  # Llama 3 70B in NVFP4: none, beside "full_iteration"
    assert case_of(named("runs/nvidia_perf.csv", 261)).plan.recompute == 7  # every seventh of Llama 3 8B's 32 layers: five
    assert recipe_of(named("runs/nvidia_perf.csv", 295)) == NOTHING  # NeMo of 2024


def of_megatron_bridge(release: str, model: str, device: str, dtype: str, **cells: str) -> Run:
    """A row of a container of Megatron-Bridge."""
    return changed(
        KORTHIKANTI[0], dataset="nvidia_perf", stack="nemo", framework=f"Megatron-Bridge {release} NeMo Container",
        model_name=model, gpu_id=device, compute_dtype=dtype, **cells,
    )  # fmt: skip


@pytest.mark.parametrize(("release", "model", "device", "dtype", "wanted"), [
    ("25.09", "DeepSeekV3 (dropless)", "h100-sxm", "fp8",
     Recipe(recompute="latent-projections+mlp", dispatcher="flex deepep", overlap_experts=True)),
    ("26.02", "DeepSeekV3", "gb200", "mxfp8",
     Recipe(recompute="latent-projections", dispatcher="flex hybridep", graph_modules="attention+router")),
    ("26.04", "DeepSeekV3", "gb200", "mxfp8",
     Recipe(recompute="mlp", dispatcher="flex hybridep", graph_modules="attention+router")),
    ("26.06", "DeepSeekV3", "gb200", "mxfp8", Recipe(
        recompute="latent-projections", dispatcher="flex hybridep", cuda_graphs=True, fused_experts=True, overlap_experts=True,
    )),
    ("26.04", "GPT OSS 120B", "gb200", "bf16",
     Recipe(recompute="norms+expert-activation", dispatcher="flex hybridep", overlap_experts=True)),
    ("26.04.01", "Qwen3_30B_a3B", "h100-sxm", "fp8", Recipe(dispatcher="flex hybridep")),
    ("25.11", "LLAMA3_8B", "gb300", "mxfp8", Recipe(cuda_graphs=True)),
    ("25.11", "LLAMA3_8B [SFT]", "gb300", "mxfp8", NOTHING),
])  # fmt: skip
def test_a_row_runs_what_its_own_release_had(release, model, device, dtype, wanted, tmp_path):
    """NVIDIA-NeMo/Megatron-Bridge at the release's tag: scripts/performance."""
    run = of_megatron_bridge(release, model, device, dtype)
    assert recipe_of(run, tmp_path) == wanted
    assert graphs_of(run, tmp_path) == (wanted.cuda_graphs, wanted.graph_modules)


def test_a_row_that_states_another_releases_plan_is_refused_with_the_reason():
    run = of_megatron_bridge("26.02.01", "Qwen3_30B_a3B", "h100-sxm", "fp8", pp="2", vpp="12", ep="8")
    with pytest.raises(NotModelled, match=r"26\.02\.01 .* with Qwen3_30B_a3B: states the plan of the release before"):
        case_of(run)
    assert not recipe_of(changed(run, pp="1", vpp="", ep="16")).refused


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(("file", "row", "reason"), [
    ("runs2/nvidia_perf.csv", 22, "ten times slower"), ("runs2/nvidia_perf.csv", 192, "plan of the release before"),
    ("runs/nvidia_perf.csv", 166, "no recipe of its release"), ("runs/nvidia_perf.csv", 168, "no recipe of its release"),
])  # fmt: skip
def test_rows_that_say_nothing_of_their_plan_are_left_out(file, row, reason):
    _, skipped = cases_of([named(file, row)])
    assert [reason in why for why in skipped] == [True]


def test_every_line_about_a_release_has_its_source():
    with RELEASES.open(encoding="utf-8") as file:
        assert all(re.search(r":\d+", line["source"]) for line in csv.DictReader(file))


@pytest.mark.parametrize(("name", "wanted"), [("Qwen3_30B_a3B (tokendrop)", "alltoall"), ("Qwen3_30B_a3B", "hybridep")])
def test_tokens_are_dropped_by_a_dispatcher_that_can(name, wanted):
    """NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/utils/moe_token_drop.py; every row's notes have the word."""
    notes = "MoE: force-balanced routing, token-dropless unless named tokendrop; HybridEP"
    assert dispatcher_of(of_megatron_bridge("25.09", name, "gb200", "fp8", notes=notes)) == wanted


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(
    ("row", "modules"), [(99, "router"), (430, "router"), (93, "attention+router"), (265, None), (292, None)]
)
def test_graphs_hold_what_surrounds_experts_from_the_release_on_that_first_did(row, modules):
    """NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs @v0.2.0 to @v0.4.2, ``cuda_graph_scope``; row 430 says so."""
    plan = case_of(named("runs2/nvidia_perf.csv", row)).plan
    assert (plan.cuda_graphs, plan.graph_modules) == (modules is not None, modules)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(("file", "row", "rank", "targets"), [
    ("runs2/litgpt_finetune.csv", 2, 32, ("query", "value")), ("runs2/mlperf.csv", 19, 16, ("fused", "output")),
    ("runs2/ms_swift.csv", 83, 64, ("query", "key", "value")), ("runs2/qwen_finetune.csv", 2, 64, None),
    ("runs/nvidia_perf.csv", 74, None, ("fused",)), ("runs/nvidia_perf.csv", 388, None, None),
])  # fmt: skip
def test_rows_have_the_adapters_that_they_or_their_source_state(file, row, rank, targets):
    plan = case_of(named(file, row)).plan
    assert plan.adapter in ("lora", "qlora", "gptq-lora")
    assert (plan.lora_rank, plan.lora_targets) == (rank, targets)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_rows_that_add_up_keep_what_those_before_them_changed():
    """torchtune's optimization flags: packed, compiled, a loss in chunks, ..., adapters, adapters of a base in 4 bits."""
    plans = {row: case_of(named("runs/misc_training.csv", row)).plan for row in range(58, 67)}
    assert [plan.fused_norms for plan in plans.values()] == [False, *[True] * 8]
    assert [plan.fused_cross_entropy for plan in plans.values()] == [None, None, *[True] * 7]
    assert [plan.activation_offload for plan in plans.values()] == [0.0] * 5 + [1.0] * 4
    assert [plan.optimizer for plan in plans.values()] == [None] * 6 + ["adam-8bit"] * 3
    assert [plan.adapter for plan in plans.values()] == ["none"] * 7 + ["lora", "qlora"]
    with pytest.raises(NotModelled, match="not packed"):
        case_of(named("runs/misc_training.csv", 57))


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(("row", "nbytes"), [(129, 2 + 2), (131, 2 + 4 + 2)])
def test_deepspeed_keeps_whole_gradients_in_32_bit_in_bf16_alone(row, nbytes):
    """BLOOM's chronicles: 44 GB in fp16 and 67 in bf16, of one plan."""
    case = case_of(named("runs2/bigscience.csv", row))
    widths = case.plan.settings(case.framework).widths
    assert widths.parameter + widths.gradient + widths.backward_gradient == nbytes


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_sources_say_what_their_rows_leave_out_of_sharding_and_offloading():
    """bigscience-workshop/bigscience@1b92f33 experiments/gpt2-meg-ds-zero: ZeRO-3, checkpoints on the host."""
    case = case_of(named("runs/bigscience.csv", 257))
    assert (case.framework.name, case.plan.zero_stage, case.plan.activation_offload) == ("deepspeed-2021", 3, 1.0)
    assert case_of(named("runs/bigscience.csv", 256)).plan.activation_offload == 0.0  # PA_CPU=N
    said = [case_of(named("runs/bigscience.csv", row)) for row in (262, 265, 270)]  # experiments/gpt2.md: all, "Opt Offl=N", "=Y"
    assert [(case.framework.name, case.plan.optimizer_offload) for case in said] == [
        ("deepspeed-2021", 1.0), ("deepspeed-2021", 0.0), ("deepspeed-2021", 1.0)
    ]  # fmt: skip
    assert framework_of(named("runs/llmfoundry.csv", 2)).first_flash  # Triton's kernel is its benchmarks' default until 2024
    full, adapter = (framework_of(named("runs2/mlperf.csv", row)) for row in (58, 15))
    assert (full.parameter_bytes, adapter.parameter_bytes) == (2.0, 1.0)
    upcast, plain = (framework_of(named("runs/finetune_memory_fms.csv", row)) for row in (282, 11))
    states = [one.parameter_bytes + one.gradient_bytes + one.optimizer_bytes + one.update_bytes for one in (upcast, plain)]
    assert states == [20.0, 10.0]


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_sources_say_how_large_buckets_are_and_whether_a_shared_head_is_copied():
    """QwenLM/Qwen finetune/ds_config_zero2.json: 2e8 gradients a bucket; "auto" at stage 3, the hidden size squared."""
    fine_tunes = {row: case_of(named("runs2/qwen_finetune.csv", row)).plan for row in (2, 14, 20)}
    assert [plan.bucket_bytes for plan in fine_tunes.values()] == [None, 4e8, 2.0 * 2048**2]
    assert not case_of(named("runs2/litgpt_finetune.csv", 29)).model.tied_embeddings  # Llama 3.2 1B, whose checkpoint has no head


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_gigabytes_are_of_the_size_that_a_source_has_them_in():
    """QwenLM/Qwen README: "144.69GB" of a 72B model in 16 bits, 144.6e9 bytes."""
    assert case_of(named("runs2/qwen_finetune.csv", 2)).peak_bytes == pytest.approx(6.7e9)
    assert case_of(named("runs2/ms_swift.csv", 43)).peak_bytes == pytest.approx(71.34 * 2**30)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_idle_blocks_are_no_part_of_what_a_plan_needs_and_fill_a_device_at_most():
    case = case_of(named("runs2/bigscience.csv", 129))
    columns = columns_of([case])
    bill = evaluated(columns).memory
    needed, seen = float(bill.total[0]), float(logged_memory([case], columns, bill)[0])
    assert needed < seen <= case.cluster.device.usable_memory
    small = columns._replace(device=columns.device._replace(memory=columns.device.memory * 0.0 + needed * 1.01))
    assert float(logged_memory([case], small, bill)[0]) == pytest.approx(1.01 * needed)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_a_script_that_loads_a_model_whole_has_peaked_by_that_much_before_it_shards_it():
    """stas00/ml-engineering: 16.3 GiB reserved at 8,192 tokens, 8.03e9 parameters in 16 bits with little beside them."""
    short, long = (case_of(named("runs/misc_training.csv", row)) for row in (33, 39))
    columns = columns_of([short, long])
    held = logged_memory([short, long], columns, evaluated(columns).memory)
    assert held[0] == pytest.approx(2.0 * short.model.parameters, rel=1e-6)
    assert held[0] == pytest.approx(16.3 * 2**30, rel=0.1)
    assert held[1] > 4.0 * held[0]
    assert memory_kind(case_of(named("runs/misc_training.csv", 45)).run) == "reserved"  # its script says what its page doesn't
    assert memory_kind(case_of(named("runs/misc_training.csv", 58)).run) == "allocated"


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_memory_grows_with_the_micro_batch_as_the_stages_of_a_pipeline_hold_it():
    """bigscience-workshop/bigscience experiments/tr3m-1B3.md: from two sequences to eight 17 to 25 GB where one stage has the
    loss too, whose logits DeepSpeed's engine holds beside those of the micro-batch before; 11 to 15 on the first of two."""
    grown = {}
    for stages, rows in ((1, (152, 154)), (2, (156, 157))):
        cases = [case_of(named("runs/bigscience.csv", row)) for row in rows]
        columns = columns_of(cases)
        two, eight = logged_memory(cases, columns, evaluated(columns).memory)
        grown[stages] = eight - two
    assert grown[1] == pytest.approx(8.0 * 2**30, rel=0.25)
    assert grown[2] == pytest.approx(4.0 * 2**30, rel=0.4)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize(
    ("file", "row", "rotated", "activated"),
    [
        ("runs/finetune_memory_fms.csv", 10, True, True),  # transformers' own kernels
        ("runs/finetune_memory_fms.csv", 14, False, True),  # fms-acceleration's: norms, rotation, loss
        ("runs/finetune_memory_fms.csv", 254, False, True),  # and of Liger's the loss alone
        ("runs/misc_training.csv", 33, False, False),  # Liger's
    ],
)
def test_fused_kernels_keep_what_the_plugin_leaves_separate(file, row, rotated, activated):
    """foundation-model-stack/fms-acceleration@876e2ed plugins/fused-ops-and-kernels/configs; linkedin/Liger-Kernel README."""
    framework = case_of(named(file, row)).framework
    assert (framework.keep_rotated, framework.keep_activated) == (rotated, activated)


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
def test_machines_of_one_source_are_told_apart_by_their_network_but_not_by_its_wording():
    selene, roce = (cluster_name(case_of(named(*of))) for of in (("runs2/papers.csv", 39), ("runs/papers.csv", 57)))
    assert selene != roce
    wordings = ("8x 200 Gb/s HDR InfiniBand per node (paper sec. 5)", "8x HDR 200 Gb/s InfiniBand per node")
    assert len({fabric_of(words) for words in wordings}) == 1
    assert fabric_of("") == fabric_of("n/a (single node)") == fabric_of("not stated") == ""
    assert [fabric_of(words) for words in ("ROCE2; 504 GB/s", "AWS EFA", "Intel OPA, 400 Gb/s")] == ["roce", "efa", "omni-path"]
