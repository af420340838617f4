"""Predictions held against measured runs."""
