"""A layer of Hugging Face's models saves what the library says, byte for byte."""

import pytest

from tests.audits.saved import CASES, SHAPE, TOKENS, channels, kept


def test_what_the_library_says_is_counted_here_tensor_by_tensor():
    """Bytes a token of a layer of 256 channels, 128 of keys and of values, 768 inside."""
    norm = (4 + 2) * 256 + 2 * 256  # its input in 32 bits, that times its root in 16; its output, which products read
    llama = 2 * norm + 2 * (256 + 128 + 128 + 256) + 4 * 8 + 4 * 2 * 768  # queries, keys, values, output; gate, up, silu, product
    assert CASES["Llama"].told() == TOKENS * llama
    plain = 2 * (2 * 256 + 2 * 256) + 2 * 4 * 256 + 4 * 8  # norms' inputs and outputs; queries, keys, values, output
    assert CASES["GPT-2"].told() == TOKENS * (plain + 2 * 5 * 768)  # what it reads, half, tangent, one more, what it makes
    assert CASES["OPT"].told() == TOKENS * (plain + 2 * 768)
    assert CASES["Llama, recomputed"].told() == TOKENS * 2 * 256
    assert CASES["Qwen3"].told() == TOKENS * (llama + (4 + 2) * (256 + 128))
    parallel = 2 * (256 + 2 * 256) + 4 * 8 + 2 * 2 * 768  # one input of two norms, their outputs; what the MLP reads and makes
    rotated = 2 * (2 * 256 + 3 * 256 + 2 * 256)  # queries and keys; the product that they come from; the output, laid out twice
    assert CASES["GPT-NeoX"].told() == TOKENS * (parallel + rotated)
    of_mask = 2 * 512
    assert CASES["Falcon"].told() == TOKENS * (parallel - 2 * 256 + rotated - 2 * 256 + of_mask)  # one norm; one output
    assert CASES["Phi-3"].told() == TOKENS * (llama + 2 * (256 + 128) + 2 * 256)
    assert CASES["Gemma"].told() == TOKENS * (llama + 2 * 2 * 256)  # what a norm's weight multiplies, in 32 bit
    cast = 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256)  # a layer's matrices as they were multiplied
    wider = 2 * 2 * 256 + 2 * (2 + 1) * 256  # what a norm's weight multiplies; inputs cast for each of three products and of two
    assert CASES["Llama under autocast"].told() == TOKENS * (llama + wider) + cast
    assert CASES["Llama under autocast, recomputed"].told() == TOKENS * 4 * 256
    cast = 2 * (4 * 256 * 256 + 2 * 768 * 256)
    wider = 2 * 2 * 256 + 2 * 3 * 768  # norms' inputs, and three of the activation's tensors, are twice as wide
    assert CASES["GPT-2 under autocast"].told() == TOKENS * (plain + 2 * 5 * 768 + wider) + cast
    frozen = llama - 2 * 2 * 256 + 2 * 8 * 7  # no norm trains; what goes between an adapter's two matrices
    assert CASES["Llama with LoRA"].told() == TOKENS * frozen
    dropped = (2 + 1) * (5 * 256 + 256 + 768)  # each adapter's own copy and its mask, where three copies were there
    without = 2 * (2 * 256 + 768)
    assert CASES["Llama with LoRA that drops out"].told() == TOKENS * (frozen + dropped - without)
    apart = 2 * (2 * 256 + 256 + 256)  # cast for each: two of queries, keys and values more, one of gate and up, the output's
    assert CASES["Llama with LoRA in 32 bit"].told() == TOKENS * (frozen + apart)
    assert CASES["Llama with LoRA in 32 bit that drops out"].told() == CASES["Llama with LoRA that drops out"].told()
    wider = 2 * (6 * 256 + 768 + 8 * 7)
    assert CASES["Llama with LoRA in 32 bit, nothing cast"].told() == TOKENS * (frozen + apart + wider)
    assert SHAPE.hidden == 256


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_layer_saves_what_the_library_says(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    found = kept(case.traced().roles[0])
    assert channels(found) == case.told(), found
