"""Damaged launch files: a clear line or a launch that lists what it could not use; never a traceback, never a wrong plan."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.interop.launchers import read_launch, resolve
from costmodel.interop.launchers.dialects import DIALECTS
from costmodel.text.errors import CostModelError

MEGATRON = """--num-layers 32|--hidden-size 4096|--ffn-hidden-size 14336|--num-attention-heads 32|--group-query-attention
--num-query-groups 8|--seq-length 8192|--max-position-embeddings 8192|--position-embedding-type rope|--swiglu
--normalization RMSNorm|--untie-embeddings-and-output-weights|--disable-bias-linear|--micro-batch-size 1|--global-batch-size 128
--bf16|--tensor-model-parallel-size 2|--pipeline-model-parallel-size 2|--sequence-parallel|--use-distributed-optimizer
--vocab-size 128256|--recompute-granularity full|--recompute-method uniform|--recompute-num-layers 1|--lr 1e-4|--clip-grad 1.0
--context-parallel-size 1|--overlap-grad-reduce|--hidden-dropout 0.0|--attention-dropout 0.0""".replace(
    "\n", "|"
).split("|")
TREE = {
    "general": {"project": "p", "run": "r"},
    "checkpoints": {"checkpoint_interval": 100},
    "model": {
        "dtype": "bfloat16",
        "model_config": {
            "num_hidden_layers": 28, "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
            "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
        },
    },
    "optimizer": {"zero_stage": 1, "accumulate_grad_in_fp32": True, "optimizer_factory": {"name": "adamW"}},
    "parallelism": {"dp": 32, "pp": 1, "tp": 2, "pp_engine": "1f1b", "recompute_layer": False, "tp_mode": "REDUCE_SCATTER"},
    "tokens": {"batch_accumulation_per_replica": 2, "micro_batch_size": 4, "sequence_length": 4096},
}  # fmt: skip
MEGATRON_TABLE = next(one for one in DIALECTS if one.name == "megatron")
KNOWN = {*MEGATRON_TABLE.index, *MEGATRON_TABLE.irrelevant, *MEGATRON_TABLE.unpriced}
SOUND = read_launch("\n".join(MEGATRON), gpus=16)
PLAN = resolve(SOUND).plan
HUGE = st.sampled_from(
    [
        "1e300",
        "9" * 50,
        "-1",
        "0",
        "1.5",
        "nan",
        "inf",
        "",
        "true",
        "$X",
        "[1, 2]",
        "x" * 600,
        "0x10",
        "1_0",
        "\u0661",
    ]
)
ANY = st.one_of(HUGE, st.text(max_size=12))
PLAIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)


def judged(text, **settings):
    """A launch and its plan, or None where a clear line refuses one."""
    try:
        launch = read_launch(text, **settings)
        priced = resolve(launch, gpus=16 if launch.gpus is None else None)
    except CostModelError as error:
        message = str(error)
        assert message and "\n" not in message
        assert len(message) < 3000
        return None
    assert not launch.conflicts and not launch.unresolved
    return launch, priced


def test_the_undamaged_file_is_sound():
    launch, priced = judged("\n".join(MEGATRON), gpus=16)
    assert (priced.plan.tensor_parallel, priced.plan.pipeline_parallel, priced.plan.data_parallel) == (
        2,
        2,
        4,
    )
    assert launch.unknown == ()


@PLAIN
@given(st.sets(st.integers(0, len(MEGATRON) - 1), max_size=8))
def test_a_dropped_flag_is_assumed_or_asked_for(dropped):
    kept = [line for place, line in enumerate(MEGATRON) if place not in dropped]
    if (answer := judged("\n".join(kept), gpus=16)) is not None:
        launch, _ = answer
        for field, value in launch.plan_fields.items():
            if (
                field in SOUND.plan_fields
                and value != SOUND.plan_fields[field]
                and field not in ("data_parallel", "gradient_accumulation")
            ):
                assert field in launch.assumed or field in launch.derived


@pytest.mark.slow
@PLAIN
@given(st.integers(0, len(MEGATRON) - 1), st.integers(0, len(MEGATRON)), ANY)
def test_a_doubled_flag_with_another_value_is_a_conflict_or_changes_nothing(which, where, value):
    flag = MEGATRON[which].split()[0]
    lines = [*MEGATRON[:where], f"{flag} {json.dumps(value)}", *MEGATRON[where:]]
    answer = judged("\n".join(lines), gpus=16)
    if answer is not None:
        assert answer[1].plan == PLAN


@PLAIN
@given(st.integers(0, len(MEGATRON) - 1), st.integers(2, 30), st.characters(categories=["Ll"]))
def test_a_misspelt_flag_is_listed_as_unknown(which, place, letter):
    flag, _, value = MEGATRON[which].partition(" ")
    place = min(place, len(flag) - 1)
    wrong = flag[:place] + letter + flag[place + 1 :]
    lines = [f"{wrong} {value}" if line == MEGATRON[which] else line for line in MEGATRON]
    try:
        launch = read_launch("\n".join(lines), gpus=16)
    except CostModelError:
        return
    if wrong.lstrip("-").replace("-", "_") not in KNOWN:
        assert wrong in launch.unknown


@PLAIN
@given(st.integers(0, len(MEGATRON) - 1), ANY)
def test_a_wild_value_is_refused_by_name_or_changes_nothing_in_silence(which, value):
    flag = MEGATRON[which].split()[0]
    lines = [f"{flag} {json.dumps(value)}" if line == MEGATRON[which] else line for line in MEGATRON]
    try:
        launch = read_launch("\n".join(lines), gpus=16)
    except CostModelError as error:
        assert "\n" not in str(error)
        return
    for number in ("tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch", "seq_len"):
        stated = launch.plan_fields[number]
        assert stated is None or (isinstance(stated, int) and 1 <= stated <= 10**15)


WILD = st.one_of(
    ANY, st.none(), st.integers(), st.floats(), st.lists(st.integers(), max_size=3), st.booleans()
)
NESTED = st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists, max_leaves=5)
LEAVES = [(section, key) for section in ("parallelism", "tokens", "optimizer") for key in TREE[section]]


@PLAIN
@given(st.sampled_from(LEAVES), WILD)
def test_a_tree_with_a_wild_leaf_ends_in_a_line_or_a_launch(leaf, value):
    tree = json.loads(json.dumps(TREE))
    tree[leaf[0]][leaf[1]] = value
    judged(json.dumps(tree), dialect="nanotron")


@PLAIN
@given(st.text(max_size=300))
def test_any_text_is_refused_in_a_line_or_read(text):
    judged(text if "\n" in text else text + "\n")


@PLAIN
@given(st.dictionaries(st.text(max_size=20), NESTED, max_size=8))
@pytest.mark.parametrize("name", [one.name for one in DIALECTS if one.about.layout != "args"][:4])
def test_any_tree_is_refused_in_a_line_or_read(name, tree):
    judged(json.dumps(tree) + "\n", dialect=name)


@pytest.mark.parametrize("text", [
    "a: &a [x]\nb: *a\nc: [*a, *a]\n", "[" * 2000 + "]" * 2000 + "\n", "{" * 2000 + "\n", "a: 1\na: 2\n", "--x '\n", "\x00\n",
    "a:\n  - b\n c\n",
    "!!python/object/apply:os.system ['true']\n", "--- 1\n--- 2\n", "a = 1\na = 2\n[b]\n", "x: " + "9" * 5000 + "\n",
])  # fmt: skip
def test_hostile_texts_end_in_a_line(text):
    assert judged(text) is None


def test_references_that_go_round_end():
    text = "trainer:\n  devices: 8\nmodel:\n  num_layers: ${model.hidden_size}\n  hidden_size: ${model.num_layers}\n"
    launch = read_launch(text, dialect="nemo")
    assert launch.unresolved
