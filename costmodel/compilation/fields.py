"""Fields of a plan by the table of a product that varies them; every other splits the GPUs, which both tables know."""

from costmodel.description.recomputation import FIELDS

INNER = ("micro_batch", "sequence_parallel", *FIELDS)
OUTER = ("virtual_stages", "schedule", "shard_optimizer", "shard_gradients", "shard_weights", "shard_group")
LANES = 8
"""Rows that vector code works on at a time."""
