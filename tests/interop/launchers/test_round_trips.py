"""Plans written as launch files and read back, in every dialect that can say them."""

import dataclasses

import pytest

from costmodel import Plan, load_cluster, load_framework, load_model
from costmodel.catalogue.changes import replace
from costmodel.description.fields import table
from costmodel.interop.launchers import formats, read_launch, resolve, write_launch, write_sweep
from costmodel.interop.launchers.dialects import DIALECTS
from costmodel.interop.launchers.pricing import catalogue_name
from costmodel.interop.launchers.table import about
from costmodel.interop.launchers.writing import priced_by, written
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled

SHORT = {
    "gbs": "global_batch", "seq": "seq_len", "tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel",
    "dp": "data_parallel", "ep": "expert_parallel", "etp": "expert_tensor_parallel", "vp": "virtual_stages", "mbs": "micro_batch",
    "zero": "zero_stage",
}  # fmt: skip
LINES = """
    llama3-8b gbs=64 seq=8192 dp=8
    llama3-8b gbs=64 seq=8192 dp=8 zero=3
    llama3-8b gbs=64 seq=8192 dp=8 zero=2 recompute=full
    llama3-8b gbs=128 seq=4096 dp=8 mbs=2 zero=1 recompute=full
    llama3-8b gbs=32 seq=2048 dp=4 mbs=8 zero=0 dtype=fp32
    llama3-8b gbs=64 seq=8192 dp=16 zero=3 dtype=fp8 recompute=full
    llama3-70b gbs=1024 seq=8192 tp=8 pp=4 dp=2
    llama3-70b gbs=1024 seq=8192 tp=8 pp=4 vp=5 dp=2 recompute=selective
    llama3-70b gbs=512 seq=8192 tp=4 cp=2 pp=4 dp=2 zero=1
    llama3-70b gbs=64 seq=8192 tp=8 dp=8 zero=3 recompute=full
    llama3-70b gbs=256 seq=4096 tp=8 pp=2 vp=2 dp=4 zero=1
    llama3.1-405b gbs=2016 seq=8192 tp=8 pp=9 vp=7 cp=2 dp=32 zero=1
    llama3.1-405b gbs=128 seq=8192 tp=8 dp=16 zero=3 dtype=fp8 recompute=full
    mixtral-8x7b gbs=256 seq=4096 pp=4 ep=8 dp=16
    mixtral-8x7b gbs=256 seq=4096 tp=2 ep=4 etp=1 dp=8
    deepseek-v3 gbs=2048 seq=4096 pp=8 ep=16 dp=32 dtype=mxfp8
    gpt3-175b gbs=1536 seq=2048 tp=8 pp=16 dp=8 dtype=fp16
    gpt3-13b gbs=512 seq=2048 tp=2 dp=16 mbs=4
    qwen3-8b gbs=32 seq=32768 cp=4 dp=2 zero=3 recompute=full
    qwen2.5-72b gbs=16 seq=8192 tp=8 dp=1 recompute=full optimizer_offload=1.0
    gpt-neox-20b gbs=1536 seq=2048 tp=2 pp=4 dp=12 mbs=4 zero=1 recompute=full dtype=fp16
    smollm3-3b gbs=36 seq=65536 tp=2 cp=4 dp=12 zero=0 recompute=full
    llama2-7b gbs=256 seq=4096 tp=2 dp=4 sequence_parallel=False mbs=4
    llama2-7b gbs=64 seq=2048 dp=8 zero=0 adapter=lora
    llama2-7b gbs=64 seq=2048 dp=8 zero=0 adapter=qlora
    llama2-70b gbs=128 seq=4096 dp=64 mbs=2 zero=3 recompute=full
    qwen3-30b-a3b gbs=128 seq=4096 ep=8 dp=16 zero=1 dtype=fp8
    falcon-40b gbs=1152 seq=2048 tp=8 pp=4 dp=12 zero=1
    olmo2-7b gbs=1024 seq=4096 dp=128 mbs=2 zero=3
    llama3-8b gbs=128 seq=8192 dp=8 tp=2 gradient_bytes=2 overlap_tensor=True fused_cross_entropy=True
"""


def plan_of_line(line: str) -> tuple[str, dict[str, object]]:
    """A model and the fields of a plan from a line of `LINES`."""
    name, *settings = line.split()
    fields = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        fields[SHORT.get(key, key)] = {"True": True, "False": False}.get(
            value, int(value) if value.isdigit() else value
        )
        if key.endswith("offload"):
            fields[key] = float(value)
    return name, fields


PLANS = [plan_of_line(line) for line in LINES.strip().splitlines()]
LEAST = {
    "megatron": 28, "megatron-deepspeed": 16, "nemo": 18, "megatron-bridge": 23, "torchtitan": 15, "huggingface": 14,
    "llama-factory": 10, "axolotl": 15, "nanotron": 19, "llm-foundry": 11, "torchtune": 11, "gpt-neox": 20, "colossalai": 22,
    "openrlhf": 5,
}  # fmt: skip
"""Of the thirty plans, how many a dialect says to the last field; a fall is a loss."""
DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "data_parallel")


def software(name: str):
    return load_framework(next(one.about.software for one in DIALECTS if one.name == name))


def unsayable(name: str, plan: Plan, model) -> list[str]:
    """Fields of a plan that a dialect can't say."""
    return written(name, plan, model, None)[1]


def sayings(name: str):
    """Plans with the fields that a dialect can't say, for those whose degrees it can."""
    for model_name, fields in PLANS:
        plan, model = Plan(**fields), load_model(model_name)
        try:
            yield plan, model, unsayable(name, plan, model)
        except NotModelled:
            continue


def spelt_out(plan: Plan) -> Plan:
    """A plan whose adapter has the rank and the matrices that it has where nothing is said."""
    if plan.adapter == "none":
        return plan
    every = ("query", "key", "value", "output", "gate", "up", "down")
    return dataclasses.replace(plan, lora_rank=plan.lora_rank or 16, lora_targets=plan.lora_targets or every)


@pytest.mark.slow
@pytest.mark.parametrize("name", formats())
def test_thirty_plans_come_back_as_they_were_written(name):
    assert len(PLANS) == 30
    whole = 0
    for plan, model, lost in sayings(name):
        assert not set(lost) & set(DEGREES)
        text = write_launch(name, plan, model)
        settings = {
            field: str(getattr(plan, field))
            for field in lost
            if field in ("seq_len", "global_batch", "micro_batch")
        }
        launch = read_launch(text, gpus=plan.gpus, dialect=name, settings=settings)
        assert launch.unknown == () and launch.conflicts == ()
        back = spelt_out(resolve(launch, model=model, gpus=plan.gpus).plan.resolve(software(name)))
        own = None if plan.fused_cross_entropy else about(name).loss
        sent = dataclasses.replace(plan, loss=plan.loss or own)
        sent = spelt_out(sent.resolve(software(name)))
        different = {
            f.name for f in dataclasses.fields(Plan) if getattr(back, f.name) != getattr(sent, f.name)
        }
        different -= {field for field, row in table(Plan).items() if getattr(plan, row.idle, 2) == 1}
        assert different <= set(lost)
        for field in lost:
            assert field in text  # the file says what it can't
        whole += not lost
    print(name, whole)
    assert whole >= LEAST.get(name, 0)


@pytest.mark.parametrize("name", formats())
def test_a_written_file_is_known_without_being_told_its_dialect(name, tmp_path):
    plan, model = (
        Plan(global_batch=64, seq_len=4096, data_parallel=8, zero_stage=software(name).zero_stage),
        load_model("llama3-8b"),
    )
    text = write_launch(name, plan, model)
    layout = next(one.about.layout for one in DIALECTS if one.name == name)
    file = tmp_path / f"run.{layout}"
    file.write_text(text)
    launch = read_launch(file, gpus=8)
    assert launch.dialect == name
    assert launch.unknown == ()


@pytest.mark.parametrize("name", ["megatron", "nemo", "nanotron"])
@pytest.mark.parametrize("model_name", ["llama3-8b", "gpt3-13b", "mixtral-8x7b", "qwen3-8b"])
def test_a_shape_that_is_written_has_the_same_parameters_when_read(name, model_name):
    model = load_model(model_name)
    if name == "nanotron" and not model.gated:
        pytest.skip("nanotron's files say nothing of a plain MLP")
    text = write_launch(name, Plan(global_batch=64, seq_len=2048, data_parallel=8), model)
    read = resolve(read_launch(text, gpus=8, dialect=name), gpus=8).model
    assert read.parameters == pytest.approx(model.parameters, rel=0.01)


def test_the_best_plans_are_written_as_files_with_a_line_to_run_each(tmp_path):
    plans = [
        Plan(global_batch=64, seq_len=4096, data_parallel=8),
        Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4),
    ]
    lines = write_sweep(
        "megatron",
        plans,
        load_model("llama3-8b"),
        tmp_path / "sweep",
        cluster=load_cluster("dgx-h100", gpus=8),
    )
    files = sorted(path.name for path in (tmp_path / "sweep").iterdir())
    assert files == ["plan-001.args", "plan-002.args", "run.sh"]
    assert all("plan-00" in line for line in lines)
    assert read_launch(tmp_path / "sweep" / "plan-002.args").plan_fields["tensor_parallel"] == 2
    assert read_launch(tmp_path / "sweep" / "plan-002.args").gpus == 8


@pytest.mark.parametrize("name", ["accelerate", "axolotl", "torchtitan", "torchtune"])
def test_a_group_of_shards_that_is_wider_than_all_ranks_is_written_as_one(name):
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=2, zero_stage=3, shard_group=8)
    assert "shard_group" in unsayable(name, plan, load_model("llama3-8b"))


def test_megatron_is_told_of_what_is_computed_again_and_of_nothing_that_it_has_no_name_for():
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, recompute="operators")
    assert "recompute" in unsayable("megatron", plan, load_model("llama3-8b"))
    assert "recompute" not in unsayable("megatron", dataclasses.replace(plan, recompute="mlp+norms"), load_model("llama3-8b"))


@pytest.mark.parametrize("dialect", ["megatron", "nemo", "megatron-bridge"])
def test_attention_in_8_bit_is_said_and_read(dialect):
    plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4, dtype="fp8", attention_dtype="fp8")
    assert "fp8_dot_product_attention" in write_launch(dialect, plan, load_model("llama3-8b")).replace("-", "_")
    assert "attention_dtype" not in unsayable(dialect, plan, load_model("llama3-8b"))


def test_a_dialect_that_lacks_a_degree_refuses_it_by_name():
    plan = Plan(global_batch=64, seq_len=4096, pipeline_parallel=2, data_parallel=4)
    with pytest.raises(NotModelled, match="can't say pipeline_parallel=2"):
        write_launch("torchtune", plan, load_model("llama3-8b"))
    with pytest.raises(InvalidValue, match="megatron"):
        write_launch("megatrn", plan, load_model("llama3-8b"))
    with pytest.raises(CostModelError):
        write_sweep("megatron", [], load_model("llama3-8b"), "nowhere")


@pytest.mark.parametrize(("dispatcher", "overlaps", "said"), [
    ("deduplicated", True, ("flex", "--overlap-moe-expert-parallel-comm")), ("all-to-all", False, ("alltoall", "")),
])  # fmt: skip
def test_how_tokens_come_to_their_experts_is_said_to_megatron(dispatcher, overlaps, said):
    """Its own default gathers all tokens on every rank, so that the commonest way is said, too."""
    cluster = load_cluster("dgx-h100", gpus=256)
    plan = Plan(
        global_batch=2048, seq_len=4096, tensor_parallel=2, pipeline_parallel=8, virtual_stages=2, expert_parallel=32,
        dispatcher=dispatcher, overlap_experts=overlaps,
    ).on(cluster)  # fmt: skip
    text = write_launch("megatron", plan, load_model("qwen3-235b-a22b"), cluster=cluster)
    assert f"--moe-token-dispatcher-type {said[0]}" in text and said[1] in text
    assert ("--overlap-moe-expert-parallel-comm" in text) == overlaps
    read = read_launch(text).plan_fields
    assert read["dispatcher"] == dispatcher and bool(read.get("overlap_experts")) == overlaps


@pytest.mark.parametrize(
    ("dialect", "flag", "width"), [("megatron", "--ddp-bucket-size", 4), ("megatron-bridge", "comm_overlap.bucket_size", 2)]
)
def test_a_bucket_of_gradients_is_said_in_elements_as_wide_as_the_framework_sends_them(dialect, flag, width):
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8, bucket_bytes=768e6 * width)
    written = write_launch(dialect, plan, load_model("llama3-8b"), cluster=load_cluster("dgx-b200", gpus=8))
    assert f"{flag} 768000000" in written.replace("=", " ")
    assert read_launch(written, gpus=8).plan_fields["bucket_bytes"] == 768e6 * width


@pytest.mark.parametrize("format", formats())
def test_a_model_that_was_changed_is_never_named_as_the_catalogues(format):
    """A file states the layers that were asked for, or names a model that nobody has, and says so; or it is of any model."""
    asked = {"zero_stage": load_framework(priced_by(format)).zero_stage, "data_parallel": 8}
    text = write_launch(format, Plan(global_batch=64, seq_len=4096, **asked), replace(load_model("llama3-8b"), {"layers": 40}))
    described = read_launch(text, gpus=8, dialect=format).model_described
    if isinstance(described, str):
        assert catalogue_name(described) is None
        assert "can't say layers 32 -> 40 of llama3-8b" in text
    elif described is not None and "num_layers" in described:
        assert described["num_layers"] == 40
    same = write_launch(format, Plan(global_batch=64, seq_len=4096, **asked), load_model("llama3-8b"))
    assert "changed" not in same


def test_the_software_that_files_are_for_is_known_by_its_name_wherever_a_framework_is_asked_for():
    apart = {"colossalai", "trl"}  # two entries, one of its own
    for one in DIALECTS:
        if one.about.framework not in apart:
            assert load_framework(one.about.framework).name == one.about.software, one.name
