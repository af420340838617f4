"""Formulas of a transformer's layers: parameters, FLOP, time of a pass, memory."""
