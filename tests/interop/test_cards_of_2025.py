"""Models of 2025 and 2026 by the shapes of their cards' ``config.json``: as many parameters as their authors say."""

import json
from pathlib import Path

import pytest

from costmodel.description.huggingface import read

CARDS = json.loads((Path(__file__).parent / "cards_of_2025.json").read_text(encoding="utf-8"))
"""By repository of huggingface.co: what of its ``config.json`` is shape, or might be, and the counts of its README.md."""


@pytest.mark.parametrize("name", CARDS)
def test_a_card_s_counts_are_met(name, tmp_path):
    card, file = CARDS[name], tmp_path / "config.json"
    file.write_text(json.dumps(card["config"]), encoding="utf-8")
    model = read(file, "model").model
    assert model.parameters == pytest.approx(card["parameters"], rel=0.01)
    if card["active"]:  # authors count embeddings among those that work on a token, or one of them, or none
        tables = (1 if model.tied else 2) * model.vocabulary * model.hidden
        assert 0.97 * (model.active_parameters - tables) <= card["active"] <= 1.03 * model.active_parameters
