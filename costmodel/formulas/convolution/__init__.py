"""Formulas of layers that aren't transformers': what they compute and move, and how long that takes."""
