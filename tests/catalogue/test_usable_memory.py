"""What a process can use of a card, against the total that PyTorch's out-of-memory messages give."""

import pytest

from costmodel import load_device

TOTAL = {
    "rtx-3080": 9.78, "rtx-3070": 7.78, "quadro-rtx-8000": 47.46, "rtx-a4000": 15.61, "rtx-a5000": 23.67, "a30": 23.53,
    "rtx-5090": 31.36, "rtx-2080-ti": 10.76,
}  # fmt: skip
"""GiB, by the threads that each device's provenance names."""


@pytest.mark.parametrize("name", TOTAL)
def test_a_card_has_as_much_to_use_as_its_users_are_told(name):
    device = load_device(name)
    assert device.usable_memory == pytest.approx(TOTAL[name] * 2**30, abs=1.0)
    assert device.memory * 0.95 < device.usable_memory < device.memory
