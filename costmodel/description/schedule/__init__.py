"""Pipeline schedules as data: what each rank does, in which order.

A model is cut into a chain of *stages*. A rank runs one stage, or several (then each is one of its chunks). A
micro-batch follows a *route*, which says what rank runs each of its stages: plain pipelines have one route,
bidirectional ones have two, replicated stages one for each combination of replicas. Every schedule of every system is
then the same few arrays, one entry an event, the events of a rank in the order in which it meets them.
"""

from costmodel.description.schedule.assembly import custom_schedule
from costmodel.description.schedule.events import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    MOST,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SYNC,
    WEIGHTS,
    Event,
    Integers,
    Schedule,
    deadlocked,
)
from costmodel.description.schedule.orders import CHUNKED, NAMES, pipeline_schedule

__all__ = [
    "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "CHUNKED", "FORWARD", "KINDS", "MOST", "NAMES", "RECEIVE_BACKWARD",
    "RECEIVE_FORWARD", "SEND_BACKWARD", "SEND_FORWARD", "SYNC", "WEIGHTS", "Event", "Integers", "Schedule",
    "custom_schedule", "deadlocked", "pipeline_schedule",
]  # fmt: skip
