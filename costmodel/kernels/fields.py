"""Fields of a plan by the table of a product that varies them; every other splits the GPUs, which both tables know."""

INNER = ("micro_batch", "sequence_parallel", "recompute_attention", "recompute_layers")
OUTER = ("virtual_stages", "schedule", "shard_optimizer", "shard_gradients", "shard_weights", "shard_group")
LANES = 8
"""Rows that vector code works on at a time."""
