"""Formulas of pipelines: who holds which layers, what idles, what stays in flight, how stale weights are."""
