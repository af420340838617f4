"""From which probability to fit in memory a plan is said to fit, and below which it is said not to."""

from __future__ import annotations

JUDGED = 0.8
"""Probability to fit from which a plan that somebody asks about is said to: that at which the shares of the runs that ran, and of
those that ran out, that are told so add up to most (``python -m calibration validate`` says how many)."""
CHOSEN = 0.9
"""Probability to fit from which a plan is chosen among many: one that seems to fit just so is likelier one whose memory is told
too low than a plan that somebody runs."""
EVEN = 0.5
"""Probability to fit below which a plan is said not to: what lies between may run out."""
