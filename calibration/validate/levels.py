"""How new a question is to a fit."""

LEVELS = ("plan", "model", "cluster", "device", "framework")
"""What is new, nearest first."""
