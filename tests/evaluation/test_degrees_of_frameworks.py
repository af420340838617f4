"""Frameworks split along what their users can run, and say who splits along what they lack."""

import dataclasses
import itertools

import pytest

import costmodel
from costmodel import (
    IllegalPlan,
    InvalidValue,
    Plan,
    estimate,
    load_cluster,
    load_framework,
    load_model,
    search,
)
from costmodel.arithmetic.named_tuples import flat
from costmodel.description.dimensions import DIMENSIONS
from costmodel.formulas.quantities import Software

MODEL, MIXTURE = load_model("llama3-8b"), load_model("mixtral-8x7b")
EIGHT = load_cluster("dgx-h100", gpus=8)
ASKED = {"global_batch": 64, "seq_len": 8192}
FIELD = {one.column: one.field for one in DIMENSIONS}
STAGE = {"hf-trainer": 3, "deepspeed-autotp": 2}


def split(framework: str, model=MODEL, **degrees: int) -> float:
    """Step time of a plan of eight GPUs."""
    ranks = 1
    for name, degree in degrees.items():
        ranks *= 1 if name == "expert_parallel" else degree
    stage = STAGE.get(framework, 1)
    plan = Plan(**ASKED, data_parallel=8 // ranks, zero_stage=stage, attention="flash", **degrees)
    return estimate(model, EIGHT, plan, framework).step_time


# deepspeedai/DeepSpeed docs/_pages/config-json.md, accelerate's parallelism_config.py, torchtune's recipes, nanotron's
# parallelism_config.py, Megatron-DeepSpeed's parallel_state.py
@pytest.mark.parametrize(("framework", "can", "cannot"), [
    ("deepspeed", {"expert"}, {"tensor", "context", "pipeline"}),
    ("deepspeed-autotp", {"tensor"}, {"context", "pipeline", "expert"}),
    ("deepspeed-ulysses", {"context"}, {"tensor", "pipeline", "expert"}),
    ("hf-trainer", set(), {"tensor", "context", "pipeline", "expert"}),
    ("hf-fsdp", {"tensor", "context", "expert"}, {"pipeline"}),
    ("megatron-deepspeed", {"tensor", "context", "pipeline", "expert"}, set()),
    ("deepspeed-2021", {"tensor", "pipeline"}, {"context", "expert"}),
])  # fmt: skip
def test_a_framework_splits_along_what_its_users_can_run_alone(framework, can, cannot):
    for dimension in can:
        model = MIXTURE if dimension == "expert" else MODEL
        if framework != "hf-fsdp" and framework != "deepspeed-2021":  # these differ in stages and kernels too
            assert split(framework, model, **{FIELD[dimension]: 2}) > 0
        assert dimension in load_framework(framework).dimensions
    for dimension in cannot:
        model = MIXTURE if dimension == "expert" else MODEL
        with pytest.raises(IllegalPlan, match=f"^{FIELD[dimension]}=2: {framework} has ") as refused:
            split(framework, model, **{FIELD[dimension]: 2})  # before its stage of sharding is looked at
        assert refused.value.reason == "degrees_of_framework"


@pytest.mark.parametrize("framework", ["deepspeed", "hf-trainer"])
def test_a_search_offers_no_degree_that_hugging_face_models_cannot_be_split_by(framework):
    found = search(MODEL, EIGHT, **ASKED, framework=framework, engine="numpy")
    plans = [answer.plan for answer in found.ranked]
    assert plans
    assert {(one.tensor_parallel, one.context_parallel, one.pipeline_parallel) for one in plans} == {(1, 1, 1)}
    with pytest.raises(InvalidValue, match=f"tensor_parallel=4: expected 1: {framework} splits by .*deepspeed-autotp"):
        search(MODEL, EIGHT, **ASKED, framework=framework, tensor_parallel=4)


@pytest.mark.parametrize("name", costmodel.framework_names())
def test_whoever_asks_for_a_degree_that_a_framework_lacks_is_told_who_has_it(name):
    framework = load_framework(name)
    for lacking in framework.lacking:
        names = next((row[1:] for row in framework.elsewhere if row[0] == lacking.column), ())
        assert names, f"{name} names nobody for {lacking.field}"
        assert all(lacking.column in load_framework(other).dimensions for other in names)
        assert all(other in framework.instead(lacking) for other in names)
    assert {row[0] for row in framework.elsewhere} == {one.column for one in framework.lacking}


@pytest.mark.parametrize(("framework", "model", "first", "second"), [
    ("megatron-deepspeed", MODEL, "context_parallel", "tensor_parallel"),
    ("megatron-deepspeed", MODEL, "context_parallel", "pipeline_parallel"),
    ("megatron-deepspeed", MIXTURE, "expert_parallel", "pipeline_parallel"),
    ("internevo", MODEL, "context_parallel", "tensor_parallel"),
])  # fmt: skip
def test_degrees_that_a_framework_has_one_at_a_time_are_refused_together_and_never_offered(framework, model, first, second):
    assert min(split(framework, model, **{degree: 2}) for degree in (first, second)) > 0
    with pytest.raises(IllegalPlan, match=f"{first}=2 with {second}=2: {framework} has one of them at a time"):
        split(framework, model, **{first: 2, second: 2})
    wide = load_cluster("dgx-h100", gpus=16)
    found = search(model, wide, **ASKED, framework=framework, attention="flash", engine="numpy")
    plans = [answer.plan for answer in found.ranked]
    assert any(getattr(plan, first) > 1 for plan in plans) or any(getattr(plan, second) > 1 for plan in plans)
    assert not [plan for plan in plans if getattr(plan, first) > 1 and getattr(plan, second) > 1]
    with pytest.raises(InvalidValue, match="one of them at a time"):
        search(model, wide, **ASKED, framework=framework, **{first: [2, 4], second: 2})


@pytest.mark.parametrize(("name", "base"), [("deepspeed-autotp", "deepspeed"), ("deepspeed-ulysses", "deepspeed")])
def test_the_same_code_beside_another_option_has_the_same_constants(name, base):
    variant, plain = load_framework(name, "ampere"), load_framework(base, "ampere")
    assert flat(variant.constants) == flat(plain.constants) and isinstance(variant.constants, Software)
    assert variant.owner == plain.owner
    plan = Plan(**ASKED, data_parallel=8, zero_stage=2)
    times = [estimate(MODEL, EIGHT, plan, one) for one in (name, base)]
    assert times[0].step_time == times[1].step_time and times[0].time_interval == times[1].time_interval


def test_pairs_and_hints_of_a_framework_name_dimensions():
    plain = load_framework("megatron-core")
    for bad in ([["tensor", "tensor"]], [["tensor", "sequence"]], [["tensor"]]):
        with pytest.raises(InvalidValue, match="apart"):
            dataclasses.replace(plain, apart=bad)
    with pytest.raises(InvalidValue, match="elsewhere"):
        dataclasses.replace(plain, elsewhere=[["sequence", "nemo"]])
    assert all(len(pair) == 2 for pair in itertools.chain(*[load_framework(n).apart for n in costmodel.framework_names()]))


def test_states_that_are_sharded_whatever_the_stage_stay_whole_for_ranks_that_average_otherwise():
    """megatron-deepspeed has no stage 0 in bf16, but a plan that averages by levels runs at stage 0 alone."""
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=16)
    asked = {"global_batch": 64, "seq_len": 4096, "framework": "megatron-deepspeed", "engine": "numpy"}
    for synchronisation, stages in (("hierarchical", {0}), ("all-reduce", {1})):
        found = costmodel.search(model, cluster, synchronisation=synchronisation, top=100, **asked)
        assert {one.plan.zero_stage for one in found.ranked} == stages
        best = found.best
        assert costmodel.estimate(model, cluster, best.plan, "megatron-deepspeed").step_time == best.step_time


def test_a_stage_is_a_dtype_s_own_where_a_search_tries_several():
    """Each plan is evaluated at the stage at which it runs, beside dtypes that have another."""
    model, cluster = load_model("bloom-560m"), load_cluster("dgx-h100", gpus=8)
    asked = {"global_batch": 64, "seq_len": 2048, "framework": "megatron-deepspeed", "engine": "numpy", "top": 200}
    found = search(model, cluster, dtype=["bf16", "fp16"], zero_stage=[0, 1], **asked)
    assert {(one.plan.dtype, one.plan.zero_stage) for one in found.ranked} == {("bf16", 1), ("fp16", 0)}  # no stage 0 in bf16
    assert found.evaluated + sum(found.rejected.values()) == found.considered
    for one in found.ranked[::20]:
        assert estimate(model, cluster, one.plan, "megatron-deepspeed").memory.total == pytest.approx(one.memory.total)
