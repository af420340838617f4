"""Calls as somebody types them first: answered as with descriptions, or refused in one line that says what is meant."""

import functools
import json
import operator
import pickle
import re

import pytest

import costmodel
from costmodel import Plan, load_cluster, load_model, machine
from costmodel.text.attributes import names_what_is_there
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
    fixed = {"pp": 1, "cp": 1, "tp": 2, "recompute": "full", "zero_stage": 1}
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


class Config:
    """As `transformers.PretrainedConfig` writes itself."""

    def to_json_file(self, path, use_diff=True):
        """Write a config.json."""


REFUSED = {
    "a field misspelled": (lambda: Plan(tensor_paralel=2), "tensor_paralel=2: .* did you mean tensor_parallel"),
    "a batch of no kind": (lambda: costmodel.estimate("llama3-8b", "8xh100", batch_size=64), "global_batch, .* or micro_batch"),
    "a batch in tokens": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", tokens_per_batch=4e6), "in sequences: these tokens over"),
    "a field that is none": (lambda: Plan(color=2), "color=2: expected a field of Plan"),
    "a word and its field": (lambda: costmodel.estimate("llama3-8b", "8xh100", zero=1, zero_stage=3), "which says the same"),
    "a switch and its field": (lambda: Plan(zero3=True, zero_stage=1), "zero_stage=1: expected nothing beside zero3=True"),
    "offloading of no part": (
        lambda: costmodel.memory("llama3-8b", "8xh100", offload=True), "optimizer_offload, parameter_offload"),
    "an algorithm of a step": (lambda: costmodel.estimate("qwen2.5-7b", "8xh100", grpo=True), "algorithm='grpo'\\) prices"),
    "a stage that it isn't": (lambda: costmodel.estimate("llama3-8b", "8xh100", framework="fsdp2", zero3=False),
                              "zero3=False: expected zero_stage beside it"),
    "a width that it isn't": (lambda: Plan(bf16=False), "bf16=False: expected dtype beside it"),
    "an algorithm for an adapter": (
        lambda: costmodel.estimate("qwen2.5-7b", "8xh100", method="grpo"), "post_training\\(..., algorithm='grpo'\\)"),
    "what is looked for": (lambda: costmodel.largest_batch("llama3-8b", "8xh100", gbs=4), "it is what is looked for"),
    "a length that is looked for": (lambda: costmodel.longest_sequence("llama3-8b", "h100", max_seq_len=8192), "looked for"),
    "an argument of others": (lambda: costmodel.cards("llama3-8b", tp=2), "tp=2: expected an argument of cards: .*gpus"),
    "micro-batches of a search": (
        lambda: costmodel.search("llama3-8b", "8xh100", gradient_accumulation_steps=4), "global_batch in its place"),
    "several of one": (lambda: costmodel.search("llama3-8b", "8xh100", framework=["fsdp2", "ddp"]), "compare\\(...\\) takes"),
    "several clusters": (lambda: costmodel.search("llama3-8b", ["8xh100", "8xb200"]), "compare\\(...\\) takes several"),
    "a price of a step": (lambda: costmodel.estimate("llama3-8b", "8xh100", price=2), "time_to_train\\(...\\) takes it"),
    "a budget or a price": (lambda: costmodel.time_to_train("llama3-8b", "8xh100", tokens=1e12, cost=2), "price, of a GPU for"),
    "a network of no unit": (lambda: costmodel.estimate("llama3-8b", "16xh100", bandwidth=50e9), "of a node's NICs together"),
    "a configuration of transformers": (lambda: costmodel.estimate(Config(), "8xh100"), "config.to_json_file\\('config.json'"),
    "plans to compare": (lambda: costmodel.compare("llama3-8b", "8xh100", plans=["fsdp"]), "compare\\({'a': estimate"),
    "a share in per cent": (lambda: costmodel.diagnose("llama3-8b", "8xh100", tp=2, mfu=38), "mfu=38: expected a number from"),
    "a field twice": (lambda: Plan(tp=2, tensor_parallel=4), "tensor_parallel=4: expected nothing beside tp=2"),
    "a batch of tokens in letters": (lambda: Plan(gbs="4M"), "global_batch='4M': .* did you mean 4194304 or 4000000"),
    "an argument of its own misspelled": (
        lambda: costmodel.post_training("llama3-8b", "8xh100", algoritm="dpo"), "did you mean algorithm"),
    "samples without rollouts": (lambda: costmodel.post_training("llama3-8b", "8xh100", samples=64), "rollouts=Rollouts"),
    "a block of layers": (lambda: Plan(recompute_method="block", recompute_num_layers=4), "the share of a stage's layers"),
    "a GPU's memory": (lambda: costmodel.estimate("llama3-8b", "8xh100", gpu_memory="40GB"), "'device.memory'"),
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
    "steps of a run": (lambda: costmodel.time_to_train("llama3-8b", "8xh100", max_steps=300), "max_steps=300: expected tokens"),
    "epochs of a step": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", num_train_epochs=3), "time_to_train\\(...\\) takes it"),
    "fewer layers": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", num_layers=16), "replace\\(load_model\\(...\\), {'layers'"),
    "no rate": (lambda: costmodel.estimate("llama3-8b", "h100", lora=True, lora_dropout=5), "adapter_dropout=5: .* from 0 to 1"),
    "a card in a cluster's place": (lambda: costmodel.Cluster("H100", 64), "load_cluster\\('8xh100'\\) gives one"),
    "a name in a model's place": (lambda: costmodel.Transformer("llama3-8b"), "load_model\\('llama3-8b'\\) gives one"),
    "a configuration as a table": (lambda: costmodel.search({"model_type": "llama"}, "8xh100"), "the path of the config.json"),
    "a degree of Ulysses": (lambda: costmodel.estimate("llama3-8b", "8xh100", ulysses_size=8), "expected context_parallel"),
    "two batches": (lambda: costmodel.estimate("llama3-8b", "8xh100", gradient_accumulation=2, gbs=8), "both say the sequences"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_guess_is_refused_in_one_line_that_says_what_is_meant(name):
    call, words = REFUSED[name]
    with pytest.raises(CostModelError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


LIKE = {
    "a GPU and its number": (lambda: costmodel.estimate("llama3-8b", gpu="H100", gpus=8, tensor_parallel_size=2),
                             lambda: costmodel.estimate("llama3-8b", "8xh100", tp=2)),
    "hardware as GPUs": (lambda: costmodel.estimate("llama3-8b", gpus="8xH100", zero=3), lambda: costmodel.estimate(
        "llama3-8b", "8xh100", zero_stage=3)),
    "nodes and their GPUs": (lambda: costmodel.estimate("llama3-8b", gpu="h100", nodes=2, gpus_per_node=4),
                             lambda: costmodel.estimate("llama3-8b", device="h100", gpus=8, nodes=2)),
    "texts for numbers": (
        lambda: costmodel.estimate(
            "llama3-8b", device="h100", gpus="8", gbs="64", seq_len="8k", zero="3", optimizer_offload="0.5"),
        lambda: costmodel.estimate("llama3-8b", "8xh100", gbs=64, seq_len=8192, zero_stage=3, optimizer_offload=0.5)),
    "answers and modes as texts": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", tp=2, sp="no", activation_checkpointing="full"),
        lambda: costmodel.estimate("llama3-8b", "8xh100", tp=2, sequence_parallel=False, recompute="full")),
    "a precision as accelerate says it": (lambda: costmodel.estimate("llama3-8b", "8xh100", Plan(mixed_precision="fp16")),
                                          lambda: costmodel.estimate("llama3-8b", "8xh100", mixed_precision="fp16")),
    "a rate in letters": (
        lambda: costmodel.diagnose("llama3-8b", "8xh100", tokens_per_second="60k", tp=2).estimate,
        lambda: costmodel.diagnose("llama3-8b", "8xh100", tokens_per_second=6e4, tp=2).estimate),
    "a share in per cent": (
        lambda: costmodel.diagnose("llama3-8b", "8xh100", mfu="38%", tp=2).estimate,
        lambda: costmodel.diagnose("llama3-8b", "8xh100", mfu=0.38, tp=2).estimate),
    "a length in millions": (lambda: costmodel.estimate("llama3-8b", "64xh100", Plan(seq_len="1M", gbs="1k", cp=64)),
                             lambda: costmodel.estimate("llama3-8b", "64xh100", Plan(seq_len=1 << 20, gbs=1024, cp=64))),
    "texts of a search": (
        lambda: costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, tp=["1", "2"], seq_len="8k").best,
        lambda: costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, tp=[1, 2], seq_len=8192).best),
    "one width off, another on": (lambda: costmodel.estimate("llama3-8b", "8xh100", bf16=False, fp16=True),
                                  lambda: costmodel.estimate("llama3-8b", "8xh100", dtype="fp16")),
    "recomputation as Megatron says it": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", recompute_granularity="full", recompute_method="uniform",
                                   recompute_num_layers=1),
        lambda: costmodel.estimate("llama3-8b", "8xh100", recompute="full")),
    "sharding as Trainer says it": (lambda: costmodel.estimate("llama3-8b", "8xh100", fsdp="full_shard auto_wrap"),
                                    lambda: costmodel.estimate("llama3-8b", "8xh100", framework="fsdp2", zero_stage=3)),
    "the updates of a step": (
        lambda: costmodel.post_training("llama3-8b", gpus="8xh100", method="dpo", gbs="64", zero=3).update,
        lambda: costmodel.estimate("llama3-8b", "8xh100", gbs=64, zero_stage=3, seq_len=1024)),
    "micro-batches of an unsaid batch": (
        lambda: costmodel.longest_sequence("llama3-8b", "h100", adapter="lora", mbs=2).best,
        lambda: costmodel.longest_sequence("llama3-8b", "h100", adapter="lora", mbs=2, gbs=2).best),
    "GPUs of a node, of no number": (lambda: costmodel.estimate("llama3-8b", gpu="h100", nodes=None, gpus_per_node=4),
                                     lambda: costmodel.estimate("llama3-8b", "4xh100")),
    "no adapter in capitals": (lambda: costmodel.estimate("llama3-8b", "8xh100", method="NONE", precision="BF16"),
                               lambda: costmodel.estimate("llama3-8b", "8xh100", adapter="none", dtype="bf16")),
    "a search in capitals": (
        lambda: costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, dtype="BF16", adapter="LoRA", lora_rank=8).best,
        lambda: costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, dtype="bf16", adapter="lora", lora_rank=8).best),
    "instances of a cloud": (lambda: costmodel.estimate("llama3-8b", instance="p5.48xlarge", count=2, tp=2),
                             lambda: costmodel.estimate("llama3-8b", "2xp5.48xlarge", tp=2)),
    "a count of a card": (lambda: costmodel.estimate("llama3-8b", gpu="h100", count=4, tp=2),
                          lambda: costmodel.estimate("llama3-8b", "4xh100", tp=2)),
    "a sequence by heads": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", cp=8, ulysses=True),
        lambda: costmodel.estimate("llama3-8b", "8xh100", context_parallel=8, context_communication="all-to-all")),
    "nothing offloaded": (lambda: costmodel.estimate("llama3-8b", "8xh100", offload="none", tp=2),
                          lambda: costmodel.estimate("llama3-8b", "8xh100", optimizer_offload=0, tp=2)),
    "hardware": (lambda: costmodel.estimate("llama3-8b", hardware="H100", num_gpus=8),
                 lambda: costmodel.estimate("llama3-8b", "8xh100")),
    "words of DeepSpeed's launcher": (lambda: costmodel.estimate("llama3-8b", device="h100", num_nodes=2, num_gpus=8, zero=3),
                                      lambda: costmodel.estimate("llama3-8b", "2x8xh100", zero_stage=3)),
    "words for devices": (lambda: costmodel.estimate("llama3-8b", device="h100", num_nodes=2, devices_per_node=8, zero=3),
                          lambda: costmodel.estimate("llama3-8b", "2x8xh100", zero_stage=3)),
    "words of torchrun": (lambda: costmodel.estimate("llama3-8b", device="h100", nnodes=2, nproc_per_node=8, zero=3),
                          lambda: costmodel.estimate("llama3-8b", "2x8xh100", zero_stage=3)),
    "recomputation as a switch": (lambda: costmodel.estimate("llama3-8b", "8xh100", recompute=True),
                                  lambda: costmodel.estimate("llama3-8b", "8xh100", recompute="full")),
    "words of Transformers": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", bf16=True, per_device_train_batch_size=2, gradient_accumulation_steps=4,
                                   gradient_checkpointing=True, max_seq_length=2048),
        lambda: costmodel.estimate("llama3-8b", "8xh100", micro_batch=2, global_batch=64, recompute="full", seq_len=2048)),
    "a switch that is off": (lambda: costmodel.estimate("llama3-8b", "4090", load_in_4bit=True, gradient_checkpointing=False),
                             lambda: costmodel.estimate("llama3-8b", "4090", adapter="qlora", recompute="none")),
    "ways of names": (lambda: costmodel.estimate("llama3-8b", "8xh100", precision="float16", optimizer="AdamW", framework="FSDP"),
                      lambda: costmodel.estimate("llama3-8b", "8xh100", dtype="fp16", optimizer="adam", framework="fsdp2")),
    "a plan and hardware by its name": (lambda: costmodel.estimate("llama3-8b", Plan(tp=2, **WORK), gpus="8xh100"),
                                        lambda: costmodel.estimate("llama3-8b", "8xh100", Plan(tp=2, **WORK))),
    "a plan by other names": (
        lambda: costmodel.estimate("llama3-8b", "8xh100", Plan(tensor_model_parallel_size=2, zero1=True, micro_batch_size=2)),
        lambda: costmodel.estimate("llama3-8b", "8xh100", Plan(tensor_parallel=2, zero_stage=1, micro_batch=2))),
    "LoRA and its rank": (lambda: costmodel.estimate("llama3-8b", gpu="a100", lora=True, lora_r=32),
                          lambda: costmodel.estimate("llama3-8b", "a100", adapter="lora", lora_rank=32)),
    "a search": (lambda: costmodel.search("llama3-8b", gpus="8xH100", pp=1, cp=1, zero=1, micro_batch_size=[1, 2]).best,
                 lambda: costmodel.search("llama3-8b", "8xh100", pp=1, cp=1, zero_stage=1, micro_batch=[1, 2]).best),
    "a run": (lambda: costmodel.time_to_train(model="llama3-8b", gpus="8xH100", tokens="1T", tp=2).estimate,
              lambda: costmodel.estimate("llama3-8b", "8xh100", tp=2)),
    "a diagnosis": (lambda: costmodel.diagnose("llama3-8b", gpus="8xH100", tensor_parallel_size=2, mfu=0.4).estimate,
                    lambda: costmodel.estimate("llama3-8b", "8xh100", tp=2)),
    "a comparison": (lambda: costmodel.compare("llama3-8b", gpus=["8xH100", "8xA100"], pp=1, cp=1, tp=1, zero=1)[1].estimate,
                     lambda: costmodel.search("llama3-8b", "8xa100", pp=1, cp=1, tp=1, zero_stage=1).best),
    "a card": (lambda: costmodel.cards("llama3-8b", gpu="4090", method="qlora")[0].estimate,
               lambda: costmodel.cards("llama3-8b", ["rtx-4090"], adapter="qlora").rows[0].estimate),
    "GPUs in time": (
        lambda: costmodel.gpus_in_time("llama3-8b", gpu="H100", tokens="1T", days=30, pp=1, cp=1, precision="bf16")[0].estimate,
        lambda: costmodel.gpus_in_time("llama3-8b", "h100", tokens="1T", days=30, pp=1, cp=1, dtype="bf16").rows[0].estimate),
    "a capacity": (lambda: costmodel.longest_sequence("llama3-8b", gpu="4090", qlora=True).best,
                   lambda: costmodel.longest_sequence("llama3-8b", "4090", adapter="qlora").best),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE)
def test_an_argument_by_what_others_call_it_is_the_argument(name):
    said, meant = (ask() for ask in LIKE[name])
    assert (said.plan, said.cluster, said.framework) == (meant.plan, meant.cluster, meant.framework)
    assert (said.step_time, said.memory.total) == (meant.step_time, meant.memory.total)


@functools.cache
def step():
    return costmodel.estimate(MODEL, NODE, tp=2)


@functools.cache
def found():
    return costmodel.search(MODEL, NODE, pp=1, cp=1, recompute="none", zero_stage=1)


ATTRIBUTES = {
    step: (("throughput", "tokens_per_second"), ("peak_memory", "memory.total"), ("breakdown", "times"), ("time", "step_time"),
           ("gpus", "plan.gpus"), ("micro_batch", "plan.micro_batch"), ("step_tim", "step_time")),
    (lambda: step().memory): (("peak", "total"), ("breakdown", "parts")), (lambda: step().plan): (("tp", "tensor_parallel"),),
    found: (("step_time", "best.step_time"), ("plans", "ranked"), ("to_dataframe", "to_pandas"), ("mfu", "best.mfu"),
            ("plan", "best.plan")),
    (lambda: costmodel.time_to_train(step(), tokens=1e12, price=2.0)): (("price", "cost.price"),),
    (lambda: costmodel.time_to_train(step(), tokens=1e12)): (("hours", "days"),),
    (lambda: costmodel.diagnose(step(), mfu=0.3)): (("causes", "explanations"),),
    (lambda: costmodel.longest_sequence("llama3.2-1b", "h100")): (("max_context", "value"),),
    (lambda: MODEL): (("num_attention_heads", "heads"),), (lambda: NODE): (("num_gpus", "gpus"),),
    (lambda: costmodel.compare({"a": step(), "b": found()})): (("winner", "fastest"),),
}  # fmt: skip
"""Names of attributes that others have, and those that are meant, of results that are asked for where a test runs."""


@pytest.mark.parametrize(("asked", "name", "path"), [(asked, *pair) for asked, pairs in ATTRIBUTES.items() for pair in pairs])
def test_an_attribute_that_is_not_there_names_one_that_is(asked, name, path):
    result = asked()
    with pytest.raises(AttributeError, match=rf"did you mean {re.escape(path)}\?"):
        getattr(result, name)
    assert operator.attrgetter(path)(result) is not None
    assert not hasattr(result, "_repr_mimebundle_") and pickle.loads(pickle.dumps(step().plan)) == step().plan


def test_what_a_property_lacks_is_what_its_error_says():
    class Broken:
        @property
        def step_time(self):
            return self.nothing

    with pytest.raises(AttributeError, match="nothing"):
        getattr(names_what_is_there(Broken)(), "step_time")  # noqa: B009


def test_tables_are_gone_through_picked_from_and_framed(tmp_path):
    pandas = pytest.importorskip("pandas")
    tables = [found(), costmodel.cards("llama3-8b", ["h100", "4090"], adapter=["lora", "qlora"]),
              costmodel.compare({"a": step(), "b": found()}), costmodel.ledger(MODEL, NODE, tp=2)]  # fmt: skip
    for made in tables:
        frame, written = made.to_pandas(), tmp_path / "rows.csv"
        made.to_csv(written)
        assert len(frame) == len(made.to_rows()) == len(pandas.read_csv(written)) > 0
    assert next(iter(found())).plan == found()[0].plan == found().best.plan and len(found()[:2]) == 2
    assert [one.device for one in tables[1]] == [one.device for one in tables[1].rows] and len(tables[1]) == 4


@pytest.mark.parametrize("asked", [
    lambda **work: costmodel.cards("bert-large", ["h100"], adapter="lora", **work),
    lambda **work: costmodel.gpus_in_time("bert-large", "h100", tokens="100B", days=30, pp=1, cp=1, **work),
])  # fmt: skip
def test_sequences_are_no_longer_than_the_positions_of_a_model(asked):
    """BERT has 512 learned positions: Devlin et al. 2019, arXiv:1810.04805, A.2."""
    usual, said = asked(), asked(seq_len=512)
    assert usual.to_rows() == said.to_rows()
    assert usual.rows[0].to_dict()["step_time_s"]


def test_ties_of_cards_are_those_that_may_be_as_fast():
    made = costmodel.cards("llama3-8b", ["h100", "h800", "4090"], adapter="lora")
    tied = {one.device for one in made.ties("lora")}
    assert tied == {"h100-sxm", "h800"}  # the same GPU on one card, and one with a sixth of its arithmetic
    assert {row["device"] for row in made.to_rows() if row["tied"]} == tied


@pytest.mark.parametrize(
    ("name", "meant"),
    [("longest", "longest_sequence"), ("max_batch_size", "largest_batch"), ("grpo", "post_training"),
     ("train", "time_to_train"), ("gpus", "gpus_in_time"), ("best_plan", "search"), ("estimat", "estimate"), ("models", "names"),
     ("capacity", "longest_sequence")],
)
def test_a_name_that_is_not_there_says_what_is(name, meant):
    with pytest.raises(AttributeError, match=f"did you mean {meant}"):
        getattr(costmodel, name)
