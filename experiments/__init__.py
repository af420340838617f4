"""The library held against what others say and measure, where nothing is fitted: ``python -m experiments``."""
