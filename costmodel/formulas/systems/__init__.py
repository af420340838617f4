"""Formulas of other ways to train on many machines: servers, BytePS, DistBelief, large batches, rematerialisation."""
