"""Answers: what a plan takes and holds, which plan is best, how sure that is."""
