"""What campaigns of one source have in common, told from the ledger."""

import tomllib

from calibration.ledger.command import PAIRS
from calibration.ledger.entries import read_entries
from calibration.ledger.pairs import shared


def test_the_catalogue_holds_what_the_ledger_shows():
    assert tomllib.loads(PAIRS.read_text()) == shared(read_entries())


def test_campaigns_of_one_source_have_something_and_not_all_in_common():
    assert all(0.0 < one["shared"] < 1.0 and one["sources"] > 3 for one in shared(read_entries()).values())
