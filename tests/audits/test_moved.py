"""Kernels between the products of Hugging Face's layers, and of losses, move what the library says."""

import pytest

from tests.audits.moved import CASES, LOSSES, NEAR, MovesLogits, counted
from tests.audits.saved import TOKENS

APART = {
    "Llama, padded": "the mask, and keys and values repeated for it",
    "OPT": "queries are scaled by kernels of their own",
    "GPT-NeoX": "a quarter of each head is rotated",
    "Falcon": "the mask, and keys and values repeated for it",
    "Phi": "half of each head is rotated",
    "Phi-3": "what one product makes is sliced, and each slice's gradient put into zeros",
    "StableLM": "a quarter of each head is rotated",
    "Qwen3-MoE": "experts' outputs are weighed in 16 bit",
    "GPT-NeoX with LoRA that drops out": "a quarter of each head is rotated",
    "Phi-3 with LoRA that drops out": "what one product makes is sliced, and each slice's gradient put into zeros",
    **dict.fromkeys(("Llama with Liger's kernels", "Llama with Liger's kernels under autocast", "Gemma with Liger's kernels"),
                    "what Liger rotates in place is counted once by a trace, which sees a kernel's arguments"),
}
"""Cases that the formulas don't tell apart, and why."""


def moved(*kernels: tuple[float, float]) -> float:
    """Bytes of kernels that read and write so many of each channel."""
    return sum(read + written for read, written in kernels)


def test_what_the_library_says_is_counted_here_kernel_by_kernel():
    """Bytes a token of a layer of 256 channels, 256 of queries, 128 of keys and of values, 768 inside."""
    norm = moved((2, 4), (4, 4), (4, 0), (4, 4), (4, 2), (2, 2))  # cast, square, average, scale, cast, weigh
    turned = moved((2, 2), (2, 2), (1, 1), (2, 2), (4, 2))  # cosine, sine, half's sign, halves joined, sum
    added, activated = moved((4, 2)), moved((2, 2), (4, 2))
    llama = 256 * (2 * norm + 2 * added) + 384 * turned + 768 * activated
    assert CASES["Llama"].moved()[0] == TOKENS * llama
    assert CASES["Qwen3"].moved()[0] == TOKENS * (llama + 384 * norm)
    weighed = moved((4, 4)) - moved((2, 2))  # before the second cast
    assert CASES["Gemma"].moved()[0] == TOKENS * (llama + 2 * 256 * weighed)
    norm = moved((4, 4), (4, 0), (4, 4), (4, 4))
    turned = moved((2, 4), (2, 4), (1, 1), (2, 2), (8, 4), (4, 2))
    wide = 256 * (2 * norm + 2 * moved((6, 4)) + 5 * moved((4, 2))) + 384 * turned + 768 * activated
    weights = 2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256 + 2 * 256
    assert CASES["Llama under autocast"].moved()[0] == pytest.approx(TOKENS * wide + 6 * weights, rel=1e-3)
    behind_norms, inner = moved((4, 2), (2, 0)), moved((2, 4), (4, 2), (2, 0))  # five adapters' inputs; the output's, the last
    adapted = 256 * (5 * behind_norms + (1 + 3) * inner + (6 + 2 + 2) * moved((0, 2), (2, 2), (4, 2)))
    of_lora = CASES["Llama with LoRA beside weights in 32 bit"].moved()[0]
    assert of_lora == pytest.approx(TOKENS * (wide + adapted) + 6 * weights, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=APART[name])) if name in APART else name
        for name in CASES
    ],
)
def test_the_kernels_of_a_layer_move_what_the_library_says(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    found = counted(case.traced().roles[0])
    assert case.moved() == pytest.approx((found["forward"], found["backward"]), rel=NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES)
def test_the_kernels_of_a_loss_move_what_the_library_says(case: MovesLogits) -> None:
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert [equal for _, equal in case.rows(case.traced())] == [True]
