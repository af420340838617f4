"""Formulas of communication: textbook algorithms, what NCCL and RCCL choose, and what a plan moves."""
