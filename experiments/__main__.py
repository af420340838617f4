"""``python -m experiments``: other tools on the same runs, exchanges on a testbed, figures of papers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from calibration.commands import run_command

COMMANDS = {
    "arena": ("arena.command", "the library and other tools, fetched by whoever asks, on the same measured runs"),
    "network": ("testbed.command", "exchanges of gradients on shaped links, measured and predicted (Linux, root, iproute2)"),
    "communication": ("pipedream.communication", "predict the share of communication in PipeDream's figure 1"),
    "partitions": ("pipedream.partitions", "find the configurations of PipeDream's table, and why others"),
}
"""Module and purpose of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 2 and one line on standard error for bad input."""
    return run_command("experiments", __doc__, COMMANDS, list(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
