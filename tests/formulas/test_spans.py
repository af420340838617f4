"""The span of a pipeline of unlike ranks against the schedule played out, pass by pass and message by message."""

import random

import numpy as np
import pytest

from costmodel.description.schedule import pipeline_schedule
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.pipeline.spans import PassSpan, span
from costmodel.simulation.playback import simulate_schedule

WITHIN = {"gpipe": 1e-12, "1f1b": 0.01, "zb-h1": 0.01, "zb-h2": 0.01, "interleaved": 0.01, "breadth-first": 0.01, "zb-v": 0.02}
"""By how much the longest of the known paths may miss the played one, as a share of it."""


def drawn(draw, name):
    """Stages, micro-batches, chunks, a message, what of it keeps its sender, and F, B, W of every stage of the chain.

    Ranks as plans have them: the first has an embedding and maybe fewer layers, the last a head and maybe fewer.
    """
    p = draw.choice([2, 3, 4, 8])
    v = draw.choice([2, 4]) if name in ("interleaved", "breadth-first") else 1
    chain = p * (2 if name == "zb-v" else v)
    m = draw.choice([1, 2, 4]) * p * (2 if name in ("zb-h2", "zb-v") else 1)
    body = np.array([1.0, draw.uniform(1.0, 2.5), draw.uniform(0.05, 1.1)])
    times = np.tile(body, (chain, 1))
    fewer = draw.choice([1.0, 1.0, 0.75, 0.9])
    times[0] = body * fewer + np.array([0.0, draw.uniform(0.0, 0.05), 0.0])
    times[-1] = body * draw.choice([fewer, 1.0]) + draw.uniform(0.05, 0.4) * np.array([1.0, 1.0, 1.0])
    kept = draw.choice([1.0, 0.5])
    return p, m, v, draw.uniform(0.0, 0.01) * body.sum(), kept, times


def passes(times, messages_ahead, messages, kept):
    forward, data, weight = times
    return PassSpan(forward + messages_ahead * kept, weight, forward + data + weight + messages * kept)


def of_formula(name, p, m, v, send, kept, times):
    """Ranks from stages, with what their sends keep them."""
    valley = name == "zb-v"
    own = kept * send
    ranks = [times[rank] + times[-1 - rank] if valley else times[rank::p].sum(0) for rank in range(p)]
    way = 2 if valley else v
    edge = 2 if valley else 1
    outer = 2 * way - edge
    middle = ranks[1] if p > 2 else (way * times[1] if v > 1 else ranks[-1])
    front, back = passes(ranks[0], way - edge + 1, outer, own), passes(ranks[-1], way - 1, outer, own)
    every = times.sum() + 2 * (p * way - edge) * own
    inner, down = passes(middle, way, 2 * way, own), passes(times[0], 1, 1, own)
    code = schedules.CODES[name]
    return span(code, float(p), float(v), float(m), front, inner, back, down, 0.5, every, own, send - own)


@pytest.mark.parametrize("name", WITHIN)
def test_the_span_of_unlike_ranks_is_that_of_the_schedule_played_out(name):
    draw = random.Random(name)
    for _ in range(150):
        question = p, m, v, send, kept, times = drawn(draw, name)
        schedule = pipeline_schedule(name, stages=p, micro_batches=m, chunks=v)
        sends = {"sends": "blocking"} if kept == 1.0 else {"sends": "non-blocking", "exposed": kept}
        played = simulate_schedule(schedule, *times.T, transfer_latency=send, **sends)
        whole = played.step_time
        assert of_formula(name, *question) == pytest.approx(whole, rel=WITHIN[name]), question


def test_ranks_behind_the_slowest_one_count_twice_under_1f1b():
    """The first rank is slowest: it waits for the first micro-batch to come back from the others, and for the last."""
    p, m, slow, quick = 4, 16, 3.3, 3.0
    first, other = np.array([1.1, 1.1, 1.1]), np.array([1.0, 1.0, 1.0])
    times = np.stack([first, other, other, other])
    played = simulate_schedule(pipeline_schedule("1f1b", stages=p, micro_batches=m), *times.T).total
    assert played == pytest.approx((m - (p - 1)) * slow + 2 * (p - 1) * quick, rel=1e-12)
    assert of_formula("1f1b", p, m, 1, 0.0, 1.0, times) == pytest.approx(played, rel=1e-12)
