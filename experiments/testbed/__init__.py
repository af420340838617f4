"""Exchanges of gradients on shaped links of this machine, measured and predicted."""
