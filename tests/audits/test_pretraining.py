"""Pre-training stacks exchange what the ledger says, transaction by transaction."""

from collections import Counter

import pytest

from costmodel import ledger, load_cluster
from costmodel.traces.comparison import Kind, Row
from tests.audits.case import CLUSTER
from tests.audits.pretraining import CASES, GPT, HELD, LLAMA, NEAR, Stack, around_rings

TABLE = 128_256 * 4096
LAYER = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14_336 + 2 * 4096
"""Parameters of a layer of Llama 3 8B: queries and output, keys and values, three of the MLP, two norms."""


def told(case: Stack, least: float = 65_536.0) -> dict[str, Counter[tuple[str, str, float, int]]]:
    """Phase, operation, bytes and ranks of what the ledger has of a case, by stage."""
    made = ledger(case.model, load_cluster(CLUSTER, gpus=case.ranks), case.asked, case.framework)
    found: dict[str, Counter[tuple[str, str, float, int]]] = {}
    for row in made.transactions:
        if row.nbytes >= least:
            found.setdefault(row.stage, Counter())[row.phase, row.collective, row.nbytes, row.ranks] += int(row.count)
    return found


def test_embedding_and_head_are_units_and_the_embedding_is_gathered_twice():
    """torchtitan's `apply_fsdp_to_decoder`: layers and the embedding are given up after their forward pass, norm and head not."""
    assert told(CASES["torchtitan, FSDP2"])["only"] == {
        ("forward", "all-gather", 2.0 * TABLE, 8): 1, ("forward", "all-gather", 2.0 * LAYER, 8): 4,
        ("forward", "all-gather", 2.0 * (TABLE + 4096), 8): 1,
        ("backward", "all-gather", 2.0 * LAYER, 8): 4, ("backward", "all-gather", 2.0 * TABLE, 8): 1,
        ("gradient sync", "reduce-scatter", 4.0 * (TABLE + 4096), 8): 1, ("gradient sync", "reduce-scatter", 4.0 * LAYER, 8): 4,
        ("gradient sync", "reduce-scatter", 4.0 * TABLE, 8): 1,
    }  # fmt: skip


def test_pytorchs_ring_gathers_keys_and_returns_their_gradients_in_32_bit():
    """Of 1,024 tokens of a rank, 8 heads of 128 for keys and as many for values; gradients go to each of two ranks, and home."""
    heads = 1024 * 2 * 8 * 128
    passed = {key: count for key, count in told(CASES["torchtitan, CP 2"])["only"].items() if key[3] == 2}
    assert passed == {
        ("forward", "all-gather", 2.0 * 2 * heads, 2): LLAMA.layers, ("backward", "all-gather", 2.0 * 2 * heads, 2): LLAMA.layers,
        ("backward", "send", 4.0 * heads, 2): 2 * LLAMA.layers,
    }  # fmt: skip


def test_megatron_gathers_what_it_multiplies_again_for_gradients_of_weights():
    """Twice a layer and once at the head, beside a gather for each scatter: Korthikanti et al. 2022, section 4.2.2."""
    hidden, micro_batches = 2.0 * 2 * 1024 * 1024, 4
    found = told(CASES["Megatron-LM, TP 4 with sequence parallelism"])["only"]
    sent = {key[:2]: count for key, count in found.items() if key[2] == hidden}
    of_layer, of_end = 2 * 2 * 1024 + 2 * 1024, 2 * 1024  # two norms, biases of the output and of the MLP's; the last norm
    assert found["gradient sync", "all-reduce", 4.0 * (GPT.layers * of_layer + of_end), 4] == 1
    each = 2 * GPT.layers
    assert sent == {
        ("forward", "all-gather"): micro_batches * (each + 1), ("forward", "reduce-scatter"): micro_batches * (each + 1),
        ("backward", "all-gather"): micro_batches * (each + 1 + each + 1),
        ("backward", "reduce-scatter"): micro_batches * (each + 1),
    }  # fmt: skip


def test_an_all_to_all_to_the_next_of_a_ring_is_a_send():
    ring, message = Kind("all-to-all", 8.0, 2, 1), Kind("send", 8.0, 2, 8)
    rows = [Row(0, "only", ring, 16.0, 0.0), Row(0, "only", message, 4.0, 20.0)]
    (row,) = around_rings(rows)
    assert row.agrees and row.traced == 20.0
    exchanged = [Row(0, "only", ring, 16.0, 16.0)]
    assert around_rings(exchanged) == exchanged


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_stack_exchanges_what_the_ledger_says(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert all(row.agrees for row in case.found(case.traced()))


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_a_gpu_holds_what_the_bill_says(name: str) -> None:
    case = HELD[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert abs(case.parts(case.traced())["allocated"].error) < NEAR
