"""Steps of models that read images: against published hours, and part by part against the same parts alone."""

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from costmodel import (
    IllegalPlan,
    InvalidValue,
    Plan,
    Tower,
    Transformer,
    estimate,
    load_cluster,
    load_model,
    multimodal,
    search_multimodal,
)
from costmodel.cli import main
from costmodel.description.judgement import JUDGED
from costmodel.training.passes import forward_time
from costmodel.training.towers import passed_through

IMAGES = Path(__file__).parents[1] / "interop" / "multimodal.json"
VICUNA = Transformer(name="vicuna-7b", layers=32, hidden=4096, heads=32, vocabulary=32000, feed_forward=11008)
VICUNA_13B = dataclasses.replace(VICUNA, layers=40, hidden=5120, heads=40, kv_heads=40, feed_forward=13824)
CLIP = Transformer(
    name="clip", layers=24, hidden=1024, heads=16, feed_forward=4096, vocabulary=1, patch_values=588, learned_positions=577,
    causal=False, gated=False, norm="layernorm", embedding_norm=True, attention_bias=True, output_bias=True,
    feed_forward_bias=True,
)  # fmt: skip
NODE = load_cluster("dgx-h100", gpus=8)
SMALL = Plan(global_batch=64, seq_len=4096, tensor_parallel=4, micro_batch=2)


def clip(language, **choices):
    wide = language.hidden
    return Tower(model=CLIP, tokens=577, merged=577 / 576, connector_weights=wide * (1024 + wide), **choices)


@pytest.mark.parametrize(("language", "hours"), [(VICUNA, 3.5), (VICUNA_13B, 5.5)], ids=["7B", "13B"])
def test_llava_s_first_stage_takes_the_published_hours(language, hours):
    # haotian-liu/LLaVA README.md and scripts/v1_5/pretrain.sh: 558,128 images with a caption, 256 a step on eight A100, ZeRO 2,
    # checkpointing, tower and language model frozen; an image has 576 tokens, a caption is taken to have 64 with what frames it
    plan = Plan(global_batch=256, micro_batch=32, seq_len=640, recompute="full", reentrant=True, zero_stage=2)
    step = multimodal(
        language, load_cluster("dgx-a100", gpus=8), plan, [clip(language, trains=False)], framework="hf-trainer",
        language_trains=False,
    )  # fmt: skip
    assert step.step_time * 558_128 / 256 / 3600 == pytest.approx(hours, rel=0.15)
    assert step.fits


def test_a_tower_adds_what_a_step_of_it_alone_takes():
    step = multimodal(VICUNA, NODE, SMALL, [clip(VICUNA, images=4)])
    assert step.language.estimate.step_time == step.language.time == estimate(VICUNA, NODE, SMALL).step_time
    (part,) = step.towers
    # eight images of a micro-batch over four towers of a replica, 16 micro-batches of two replicas
    alone = estimate(CLIP, NODE, Plan(global_batch=2 * 16 * 8, micro_batch=2, seq_len=577, data_parallel=8))
    assert part.time - part.connector_time == pytest.approx(alone.step_time)
    assert part.gradient_exchange == alone.times["gradient_exchange"]
    assert step.step_time == pytest.approx(part.time + step.language.time)
    assert step.parameters == VICUNA.parameters + CLIP.parameters + 4096 * (1024 + 4096)
    connected = 6 * 4096 * (1024 + 4096) * 64 * 4 * 576 / 8  # FLOP of a GPU
    assert 0.3 < connected / part.connector_time / NODE.device.peak("bf16") < 1.0


def test_a_frozen_tower_makes_forward_passes_and_holds_weights_alone():
    trained, frozen = (multimodal(VICUNA, NODE, SMALL, [clip(VICUNA, images=4, trains=trains)]) for trains in (True, False))
    alone = frozen.towers[0].estimate
    assert frozen.towers[0].time - frozen.towers[0].connector_time == forward_time(alone)
    assert forward_time(alone) < 0.45 * trained.towers[0].estimate.step_time
    assert frozen.towers[0].gradient_exchange == frozen.towers[0].activations == 0.0
    assert frozen.towers[0].states < trained.towers[0].states
    assert frozen.memory == pytest.approx(frozen.language.estimate.memory.total + frozen.towers[0].states)
    assert trained.memory - trained.language.estimate.memory.total == pytest.approx(
        trained.towers[0].states + trained.towers[0].activations
    )


def test_gradients_pass_through_a_frozen_language_model_without_any_of_its_own():
    whole = dataclasses.replace(SMALL, sequence_parallel=False)  # weights' gradients gather no inputs, which would slow kernels
    trained, frozen = (multimodal(VICUNA, NODE, whole, [clip(VICUNA)], language_trains=trains) for trains in (True, False))
    assert frozen.language.estimate.plan == estimate(VICUNA, NODE, passed_through(whole)).plan
    with_weights, without = (
        sum(step.language.estimate.times[part] for part in ("forward", "backward")) for step in (trained, frozen)
    )
    assert 0.66 < without / with_weights < 0.85  # weights' gradients are a third of the products
    times = frozen.language.estimate.times
    assert times["forward"] == trained.language.estimate.times["forward"]  # no kernel is added
    assert times["gradient_exchange"] == times["optimizer"] == times["parameter_exchange"] == 0.0
    assert frozen.language.states < 0.4 * trained.language.states
    assert not frozen.language.trains and frozen.towers[0].trains


def test_towers_of_a_replica_share_its_images_or_work_through_all_of_them():
    large = dataclasses.replace(SMALL, micro_batch=8)
    shared, same = (multimodal(VICUNA, NODE, large, [clip(VICUNA, images=4, shared=shared)]) for shared in (True, False))
    assert same.towers[0].estimate.plan.global_batch == 4 * shared.towers[0].estimate.plan.global_batch
    assert 3.3 < same.towers[0].estimate.times["forward"] / shared.towers[0].estimate.times["forward"] < 4.2
    split = multimodal(VICUNA, NODE, SMALL, [clip(VICUNA, images=4, tensor_parallel=4)]).towers[0]
    assert split.estimate.plan.tensor_parallel == 4 and split.estimate.plan.data_parallel == 2
    assert split.states < shared.towers[0].states


def test_before_a_pipeline_a_tower_keeps_what_all_micro_batches_need():
    flat = multimodal(VICUNA, NODE, SMALL, [clip(VICUNA, images=4)])
    piped = multimodal(VICUNA, NODE, dataclasses.replace(SMALL, tensor_parallel=2, pipeline_parallel=2), [clip(VICUNA, images=4)])
    assert piped.towers[0].activations == pytest.approx(16 * flat.towers[0].activations, rel=0.01)
    assert piped.towers[0].time == pytest.approx(flat.towers[0].time, rel=0.01)


def test_layers_that_attend_to_images_meet_their_tokens_and_the_sequence_has_none():
    language = dataclasses.replace(VICUNA, cross_attention_layers=8)
    step = multimodal(language, NODE, SMALL, [Tower(model=CLIP, tokens=577, images=8)])
    used = step.language.estimate.model
    assert used.source_tokens == pytest.approx(8 * 577 / 4096)
    # of each layer queries meet half of the sequence before them, or all of the images' tokens; four FLOP a channel, thrice
    met = 24 * 4096 / 2 + 8 * 8 * 577
    others = dataclasses.replace(VICUNA, vocabulary=32000).flop_per_token(4096) - 12 * 32 * 4096 * 4096 / 2
    assert used.flop_per_token(4096) == pytest.approx(others + 12 * 4096 * met, rel=1e-3)


@pytest.mark.parametrize(("change", "towers", "says"), [
    ({}, [], "at least one"), ({}, [clip(VICUNA, images=9)], "at most seq_len=4096"), ({}, ["clip"], "towers="),
    ({"adapter": "lora", "frozen": True}, [clip(VICUNA)], "language_trains"),
])  # fmt: skip
def test_what_is_no_step_with_images_is_refused(change, towers, says):
    plan = dataclasses.replace(SMALL, **{name: value for name, value in change.items() if name != "frozen"})
    with pytest.raises(InvalidValue, match=says):
        multimodal(VICUNA, NODE, plan, towers, language_trains=not change.get("frozen", False))


def test_a_tower_that_no_replica_can_hold_is_refused():
    with pytest.raises(IllegalPlan, match="doesn't divide the 4 of a replica"):
        multimodal(VICUNA, NODE, SMALL, [clip(VICUNA, tensor_parallel=3)])


def test_tokens_of_an_image_are_in_the_file_or_said(tmp_path):
    language = load_model("qwen3-8b")
    with pytest.raises(InvalidValue, match="None: the file says 256"):
        Tower.from_huggingface(IMAGES, language, image_tokens=100)
    any_size = {"model_type": "qwen2_5_vl", "vision_config": {"model_type": "qwen2_5_vl", "hidden_size": 1280}}
    (tmp_path / "config.json").write_text(json.dumps(any_size), encoding="utf-8")
    with pytest.raises(InvalidValue, match="images of any size"):
        Tower.from_huggingface(tmp_path, language)
    assert Tower.from_huggingface(tmp_path, language, image_tokens=1000, images=2).language_tokens == 2000.0


def test_a_search_finds_the_fastest_of_all_plans_of_both_parts():
    """Every plan of the language model in a small space beside every split of the tower, priced one by one."""
    tower = clip(VICUNA, images=4)
    space = {"tensor_parallel": [2, 4], "micro_batch": [2], "pipeline_parallel": [1], "context_parallel": [1]}
    found = search_multimodal(
        VICUNA, NODE, [tower], global_batch=64, seq_len=4096, recompute=["none", "full"], zero_stage=[1], top=3,
        fit_probability=JUDGED, **space,
    )  # fmt: skip
    every = []
    for tensor, recompute in itertools.product((2, 4), ("none", "full")):
        plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=tensor, micro_batch=2, recompute=recompute, zero_stage=1)
        for degree, stage, again in itertools.product((1, 2, 4), (0, 1, 2, 3), ("none", "full")):
            if tensor % degree == 0:
                split = dataclasses.replace(tower, tensor_parallel=degree, zero_stage=stage, recompute=again)
                every.append(multimodal(VICUNA, NODE, plan, [split]))
    assert found.complete and found.best.fits
    assert found.best.step_time <= min(step.step_time for step in every if step.fits) * 1.0001
    assert [step.step_time for step in found.ranked] == sorted(step.step_time for step in found.ranked)
    again = multimodal(VICUNA, NODE, found.best.language.estimate.plan, [
        dataclasses.replace(tower, **{name: getattr(found.best.towers[0].estimate.plan, name) for name in (
            "tensor_parallel", "zero_stage", "recompute")})])  # fmt: skip
    assert (again.step_time, again.memory) == (found.best.step_time, found.best.memory)


def test_of_plans_of_both_parts_what_is_said_is_kept_and_none_that_fits_is_said_so():
    tower, asked = clip(VICUNA, images=4), {"global_batch": 64, "seq_len": 4096, "pipeline_parallel": [1], "recompute": ["none"]}
    found = search_multimodal(
        VICUNA, NODE, [tower], tensor_parallel=[4], language_trains=False, of_towers={"tensor_parallel": [2]}, **asked
    )
    assert {step.towers[0].estimate.plan.tensor_parallel for step in found.ranked} == {2}
    assert not found.best.language.trains and found.best.language.states < 0.4 * 2 * VICUNA.parameters
    small = load_cluster("dgx-h100", gpus=1)
    none = search_multimodal(VICUNA, small, [tower], **asked)
    assert not none.ranked and "language model alone" in none.why_none
    with pytest.raises(InvalidValue, match="one that fits"):
        _ = none.best
    with pytest.raises(InvalidValue, match="of_towers='micro_batch'"):
        search_multimodal(VICUNA, NODE, [tower], of_towers={"micro_batch": [1]}, **asked)
    with pytest.raises(InvalidValue, match="language_trains"):
        search_multimodal(VICUNA, NODE, [tower], language_trains=False, adapter=["lora"], **asked)


ASKED = [
    "multimodal", str(IMAGES), "--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "1024", "--tensor-parallel", "2",
]  # fmt: skip


def test_the_command_says_what_the_library_does(capsys):
    assert main([*ASKED, "--images", "2", "--freeze", "tower", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    language = Transformer.from_huggingface(IMAGES)
    tower = Tower.from_huggingface(IMAGES, language, images=2, trains=False)
    step = multimodal(language, NODE, Plan(global_batch=64, seq_len=1024, tensor_parallel=2), [tower])
    assert said == json.loads(json.dumps(step.to_dict()))
    assert main([*ASKED, "--images", "2", "--freeze", "tower"]) == 0
    out, err = capsys.readouterr()
    assert "tower, frozen" in out and "left out" not in err


@pytest.mark.slow
def test_the_command_ranks_plans_of_both_parts_where_no_degree_is_said(capsys):
    searched = [*ASKED[:-2], "--images", "2", "--recompute", "none", "--micro-batch", "8"]
    assert main([*searched, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["complete"] and said["ranked"][0]["fits"]
    assert main([*ASKED, "--search", "--top", "2", "--micro-batch", "8"]) == 0
    page = capsys.readouterr().out
    assert "no other can be" in page and "TP2" in page
    long = [{"1024": "262144", "8": "64"}.get(word, word) for word in searched]
    assert main([*long, "--gpus", "1"]) == 1
    assert "No plan of both parts fits" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "says"), [
    (["--freeze", "vision"], "freeze='vision'"), (["--images", "0"], "images=0"), (["--image-tokens", "7"], "the file says"),
    (["--images", "9"], "at most seq_len"), (["--tower-tensor-parallel", "3"], "doesn't divide"),
])  # fmt: skip
def test_the_command_refuses_in_one_line(more, says, capsys):
    assert main([*ASKED, *more]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_a_model_without_a_file_is_refused(capsys):
    assert main(["multimodal", "qwen3-8b", *ASKED[2:]]) == 2
    assert "config.json of a multimodal model" in capsys.readouterr().err
