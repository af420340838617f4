"""What the published program of PipeDream was asked, and what it said: rows beside the repository, none where they aren't."""

import csv

from costmodel.description.layers import LayerChain
from tests.seeds import SEEDS


def golden():
    """Rows that have an answer."""
    if not SEEDS.is_dir():
        return []
    with (SEEDS / "pipedream_golden.csv").open() as file:
        return [row for row in csv.DictReader(file) if not row["error"]]


def asked(row):
    """A row's question as arguments, but for the chain."""
    return {
        "machines": [int(size) for size in row["n_machines_per_level(level1=innermost)"].split("x")],
        "bandwidths": [float(rate) for rate in row["bandwidth_per_level_bytes_per_s"].split("/")],
        "memory_limit": float(row["memory_limit_bytes"]) if row["use_memory_constraint"] == "True" else None,
        "straight": row["straight_pipeline"] == "True", "recurrence": "reference",
        "activation_compression": float(row["activation_compression_ratio"] or 0.0) or None,
        "compress_branches": "compress_branches" in row["profile"],
    }  # fmt: skip


def profile(name):
    """The chain of a row's profile."""
    return LayerChain.from_pipedream(SEEDS / "profiles" / f"{name.split('(')[0]}.txt")
