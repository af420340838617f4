"""BLOOM-560m on 3,072 ranks exchanges what the ledger says, package by package, transaction by transaction."""

import pytest

from costmodel.traces.comparison import compare
from tests.audits.bloom import CASES

pytestmark = pytest.mark.slow
SUMS = {
    "PyTorch DDP": {"all-reduce": 1_118_429_184},
    "PyTorch FSDP1": {"all-gather": 48 * 25_196_544 + 513_810_432, "reduce-scatter": 24 * 25_196_544 + 513_810_432},
    "PyTorch FSDP2": {"all-gather": 48 * 50_386_944 + 515_923_968, "reduce-scatter": 2 * (24 * 50_386_944 + 515_923_968)},
    "DeepSpeed ZeRO-1": {"all-reduce": 1_118_429_184, "all-gather": 1_118_429_184},
    "DeepSpeed ZeRO-1, overlap_comm": {"all-reduce": 1_118_429_184, "all-gather": 1_118_429_184},
    "DeepSpeed ZeRO-2": {"all-reduce": 604_626_944 + 513_802_240, "all-gather": 1_118_429_184},
}
"""Bytes in a step; of ZeRO-2 576.62 and 490.00 MiB are reduced, 1,066.62 gathered."""


@pytest.mark.parametrize("name", SUMS)
def test_the_ledger_has_every_transaction_of_the_package_and_no_other(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    made = compare(case.traced(), case.told())
    assert made.agrees, made
    assert {op: traced for op, _, traced, _ in made.sums()} == SUMS[name]
    assert {op: told for op, _, _, told in made.sums()} == SUMS[name]
