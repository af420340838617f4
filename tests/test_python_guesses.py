"""Calls as somebody types them first: answered as with descriptions, or refused in one line that says what is meant."""

import json

import pytest

import costmodel
from costmodel import Plan, load_cluster, load_model, machine
from costmodel.text.errors import CostModelError

MODEL, NODE = load_model("llama3-8b"), machine("h100", 8)
WORK = {"global_batch": 64, "seq_len": 4096}
BY_NAME = {
    "names of both": ({}, {}, {"data_parallel": 8, "global_batch": 256}),
    "a degree by its short name": ({"tp": 4}, WORK, {"tensor_parallel": 4, "data_parallel": 2, **WORK}),
    "choices by the piece": ({"micro_batch": 2, "zero_stage": 3}, WORK, {"micro_batch": 2, "zero_stage": 3, **WORK}),
    "a plan without a batch": ({"plan": Plan(tensor_parallel=2)}, {}, {"tensor_parallel": 2}),
    "a plan by short names": ({"plan": Plan(tp=2, pp=4, gbs=64, mbs=2)}, {}, {"pipeline_parallel": 4, "global_batch": 64,
                                                                              "tensor_parallel": 2, "micro_batch": 2}),
    "a plan and a choice": ({"plan": Plan(tp=2, **WORK), "zero_stage": 0}, {}, {"zero_stage": 0, "tensor_parallel": 2, **WORK}),
    "gradient accumulation": ({"gradient_accumulation": 4, "tp": 2}, {}, {"global_batch": 16, "tensor_parallel": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
def test_a_question_by_names_is_the_question_by_descriptions(name):
    said, work, plan = BY_NAME[name]
    found = costmodel.estimate("llama3-8b", "8xh100", **said, **work)
    expected = costmodel.estimate(MODEL, NODE, Plan(**{"seq_len": 4096, **plan}))
    assert (found.plan, found.step_time, found.memory.total) == (expected.plan, expected.step_time, expected.memory.total)


@pytest.mark.parametrize(
    ("hardware", "gpus", "per_node"),
    [
        ({"cluster": "h100"}, 1, 1), ({"cluster": "8xh100"}, 8, 8), ({"cluster": "2x8xh100"}, 16, 8),
        ({"cluster": "H100:8"}, 8, 8),
        ({"cluster": "8 x H100"}, 8, 8), ({"cluster": "dgx-h100"}, 8, 8), ({"cluster": "dgx-h100", "nodes": 2}, 16, 8),
        ({"cluster": "4xdgx-h100"}, 32, 8), ({"cluster": "dgx-h100", "gpus": 16}, 16, 8), ({"cluster": "p5.48xlarge"}, 8, 8),
        ({"device": "h100", "gpus": 8}, 8, 8), ({"device": "h100", "gpus": 8, "nodes": 2}, 8, 4), ({"device": "8xh100"}, 8, 8),
        ({"cluster": load_cluster("dgx-h100"), "gpus": 24}, 24, 8), ({"cluster": costmodel.load_device("h100"), "gpus": 4}, 4, 4),
    ],
)  # fmt: skip
def test_hardware_is_what_its_words_say(hardware, gpus, per_node):
    found = costmodel.estimate("llama3-8b", **hardware).cluster
    assert found.gpus == gpus and min(found.gpus_per_node, gpus) == per_node
    assert found.device.name == "h100-sxm"


def test_a_named_cluster_has_as_many_gpus_as_the_degrees_ask_for():
    assert costmodel.estimate("llama3-8b", "dgx-h100", tp=8, pp=4).cluster.gpus == 32
    assert costmodel.estimate("llama3-8b", "h100", tp=4).cluster == machine("h100", 4)
    assert costmodel.estimate("llama3-8b", "dgx-h100", tp=2, dp=2).cluster.gpus == 4


def test_models_are_those_of_the_hub_and_of_files(tmp_path):
    shape = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
             "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 2048}  # fmt: skip
    config = tmp_path / "config.json"
    config.write_text(json.dumps(shape), encoding="utf-8")
    found = [costmodel.estimate(path, "h100") for path in (config, str(config), str(tmp_path))]
    assert {(one.model.layers, one.plan.seq_len) for one in found} == {(16, 2048)}
    assert costmodel.estimate(model="meta-llama/Llama-3.1-8B", device="h100", gpus=8).model.name == "llama3.1-8b"


def test_adapters_are_asked_about_as_they_are_trained():
    lora, qlora = (costmodel.estimate("llama3-8b", "h100", **kind) for kind in ({"lora_rank": 32}, {"adapter": "qlora"}))
    assert lora.plan.adapter == "lora"
    assert {one.framework.name for one in (lora, qlora)} == {"hf-trainer"}
    assert (lora.plan.recompute, qlora.plan.recompute) == ("none", "full")
    assert (lora.plan.global_batch, lora.plan.seq_len) == (16, 2048)
    told = costmodel.estimate("llama3-8b", "h100", framework="fsdp2", adapter="qlora")
    assert (told.framework.name, told.plan.recompute) == ("fsdp2", "none")


def test_a_search_by_names_is_the_search_by_descriptions():
    fixed = {"pipeline_parallel": 1, "context_parallel": 1, "recompute": "none"}
    found = costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, tp=[1, 2], recompute="none")
    expected = costmodel.search(MODEL, NODE, global_batch=256, seq_len=4096, tensor_parallel=[1, 2], **fixed)
    assert [one.plan for one in found] == [one.plan for one in expected]
    assert costmodel.search("llama3-8b", device="h100", gpus=8, **WORK, **fixed, tp=1).cluster == NODE


def test_other_functions_take_names_too():
    plan = Plan(tensor_parallel=2, pipeline_parallel=2, **WORK)
    said = {"tp": 2, "pp": 2, **WORK}
    assert costmodel.memory("llama3-8b", "8xh100", **said).total == costmodel.estimate(MODEL, NODE, plan).memory.total
    assert costmodel.timeline("llama3-8b", "8xh100", **said).total == costmodel.timeline(MODEL, NODE, plan).total
    assert costmodel.simulate("llama3-8b", "8xh100", **said).total == costmodel.simulate(MODEL, NODE, plan).total
    assert costmodel.ledger("llama3-8b", "8xh100", **said).cluster_bytes == costmodel.ledger(MODEL, NODE, plan).cluster_bytes
    of_both = [costmodel.largest_micro_batch(*on, plan).value for on in (("llama3-8b", "8xh100"), (MODEL, NODE))]
    assert of_both[0] == of_both[1]
    of_both = [costmodel.longest_sequence(*on, fit_probability=0.8, **size).value
               for on, size in ((("llama3-8b", "h100"), {"gpus": 8}), ((MODEL, NODE), {}))]  # fmt: skip
    assert of_both[0] == of_both[1]
    of_both = [costmodel.collective_time("all-reduce", 1e9, 16, one).time for one in ("dgx-h100", load_cluster("dgx-h100", 16))]
    assert of_both[0] == of_both[1]


def test_a_comparison_is_of_the_best_plans_on_each():
    fixed = {"pp": 1, "cp": 1, "tp": 1, "recompute": "none"}
    made = costmodel.compare("llama3-8b", ["h100", "8xa100"], price={"h100": 2.0, "8xa100": 1.0}, tokens="1T", **fixed)
    assert [(one.name, one.estimate.plan.gpus) for one in made.choices] == [("h100", 8), ("8xa100", 8)]
    best = costmodel.search("llama3-8b", "8xh100", global_batch=256, **fixed).best
    assert made.first.estimate.step_time == best.step_time and made.first.run.tokens == 1e12


def test_every_argument_with_several_values_is_compared():
    fixed = {"pp": 1, "cp": 1, "tp": 1, "recompute": "full", "zero_stage": 1}
    made = costmodel.compare("llama3-8b", framework=["fsdp2", "megatron-core"], device="h100", gpus=[8, 16], pp=1, cp=1, tp=1)
    assert [one.name for one in made.choices] == [
        "fsdp2, 8 GPUs", "fsdp2, 16 GPUs", "megatron-core, 8 GPUs", "megatron-core, 16 GPUs"]
    assert [one.estimate.framework.name for one in made.choices] == ["fsdp2"] * 2 + ["megatron-core"] * 2
    one, two = costmodel.compare("llama3-8b", "8xh100", micro_batch=[1, 2], **fixed).choices
    best = costmodel.search(MODEL, NODE, global_batch=256, seq_len=4096, micro_batch=2, **fixed).best
    assert (one.estimate.plan.micro_batch, two.estimate.step_time) == (1, best.step_time)


def test_a_run_and_a_diagnosis_are_of_the_plan_that_is_said_and_of_the_fastest_without_one():
    fixed = {"recompute": "none", "micro_batch": 1}
    run = costmodel.time_to_train("llama3-8b", "h100", gpus=8, tokens="1T", price=2.0, **fixed)
    assert run.estimate.plan == costmodel.search(MODEL, NODE, **fixed).best.plan and run.cost.price == 2.0 * run.cost.gpu_hours
    step = costmodel.estimate(MODEL, NODE, tp=2)
    split = costmodel.time_to_train("llama3-8b", "8xh100", tp=2, tokens=1e12)
    assert split.time == costmodel.time_to_train(step, tokens=1e12).time
    rates = ({"mfu": step.mfu / 2}, {"step_time": 2 * step.step_time}, {"tokens_per_second": step.tokens_per_second / 2})
    of_three = [costmodel.diagnose("llama3-8b", "8xh100", tp=2, **measured).measured for measured in rates]
    assert of_three == pytest.approx([2 * step.step_time] * 3)


def test_a_kind_of_gpu_is_tried_in_as_many_nodes_as_it_takes():
    few = {"pp": 1, "cp": 1, "recompute": "none"}
    by_name, by_cluster = (costmodel.gpus_in_time("llama3-8b", on, tokens="1T", days=30, **few).rows[0].expected
                           for on in ("h100", [machine("h100", 1024)]))  # fmt: skip
    assert by_name.gpus == by_cluster.gpus > 8
    assert [one.gpus for one in costmodel.scaling("llama3-8b", "h100", gpus=[8, 16], **few).strong] == [8, 16]
    assert costmodel.fewest_gpus("llama3-70b", "h100", recompute="full", zero_stage=3).value > 8


REFUSED = {
    "a field misspelled": (lambda: Plan(tensor_paralel=2), "dimension='tensor_paralel': .* did you mean tensor_parallel"),
    "a batch of no kind": (lambda: costmodel.estimate("llama3-8b", "8xh100", batch_size=64), "did you mean global_batch"),
    "a field of others": (lambda: Plan(micro_batch_size=2), "did you mean micro_batch"),
    "a word for a device": (lambda: costmodel.estimate("llama3-8b", gpu="h100"), "did you mean device"),
    "a field twice": (lambda: Plan(tp=2, tensor_parallel=4), "tensor_parallel or tp"),
    "a plan as a table": (lambda: costmodel.estimate("llama3-8b", "8xh100", {"tp": 2}), "expected a Plan"),
    "an unknown device": (lambda: costmodel.estimate("llama3-8b", "8xh101"), "no device named 'h101'.*h100"),
    "an unknown model": (lambda: costmodel.estimate("lama3-8b", "8xh100"), "no model named 'lama3-8b'.*llama3-8b"),
    "no hardware": (lambda: costmodel.estimate("llama3-8b"), "cluster=None: expected .*8xh100"),
    "two kinds of hardware": (lambda: costmodel.estimate("llama3-8b", "8xh100", device="a100"), "None beside device"),
    "a size twice": (lambda: costmodel.estimate("llama3-8b", "8xh100", gpus=4), "gpus=4: .*'8xh100' says how many"),
    "a degree that doesn't divide": (lambda: costmodel.estimate("llama3-8b", "8xh100", tp=3), "does not divide"),
    "a number for a model": (lambda: costmodel.estimate(8, "8xh100"), "model=8: expected a Transformer"),
    "one answer": (lambda: costmodel.compare("llama3-8b"), "clusters="),
    "tokens where a cluster stands": (lambda: costmodel.time_to_train("llama3-8b", 1e12), "tokens=1e"),
    "nothing measured": (lambda: costmodel.diagnose("llama3-8b", "8xh100", tp=2), "step_time=None: .* mfu="),
    "hardware beside an answer": (
        lambda: costmodel.time_to_train(costmodel.estimate(MODEL, NODE), tokens=1e12, gpus=8), "gpus=8: expected nothing beside"),
    "two batches": (lambda: costmodel.estimate("llama3-8b", "8xh100", gradient_accumulation=2, gbs=8), "both say the sequences"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_guess_is_refused_in_one_line_that_says_what_is_meant(name):
    call, words = REFUSED[name]
    with pytest.raises(CostModelError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("name", "meant"),
    [("train", "time_to_train"), ("gpus", "gpus_in_time"), ("best_plan", "search"), ("estimat", "estimate"), ("models", "names")],
)
def test_a_name_that_is_not_there_says_what_is(name, meant):
    with pytest.raises(AttributeError, match=f"did you mean {meant}"):
        getattr(costmodel, name)
