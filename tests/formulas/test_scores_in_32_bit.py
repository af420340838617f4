"""What the backward pass of eager attention holds, counted at its softmax.

huggingface/transformers v5.24.0 src/transformers/models/mistral/modeling_mistral.py ``eager_attention_forward``, and the
same of models/gpt_neox/modeling_gpt_neox.py, whose norms are LayerNorms.
"""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_model

MISTRAL = dataclasses.replace(load_model("mistral-7b"), layers=4, sliding_window=0, windowed_layers=0, published_parameters=None)
PYTHIA = dataclasses.replace(load_model("pythia-6.9b"), layers=4, published_parameters=None)


def temporaries(seq_len, model=MISTRAL):
    plan = Plan(global_batch=2, seq_len=seq_len, micro_batch=2, recompute="full", attention="unfused", adapter="lora")
    return estimate(model, load_cluster("dgx-h100", gpus=1), plan, "hf-trainer").memory.temporaries


@pytest.mark.parametrize("model", [MISTRAL, PYTHIA], ids=lambda model: model.name)
def test_its_softmax_is_there_three_times_in_32_bit_and_what_the_mlp_saved_no_more(model):
    """Softmax, its gradient and that of its input; of the rest less than the five that an MLP saves."""
    scores = 2 * 32 * 2048 * 2048
    rest = temporaries(2048, model) - 3 * 4 * scores
    assert 0 < rest < 2 * 2048 * 14336 * 2 * 5
    assert temporaries(4096, model) - 2 * temporaries(2048, model) == pytest.approx(3 * 4 * 2 * scores, rel=1e-6)
