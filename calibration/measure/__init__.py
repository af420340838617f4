"""Microbenchmarks of a device: torch, NumPy and the standard library alone, so that the folder can be copied to a node."""
