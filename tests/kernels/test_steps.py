"""The step simulator's kernel against a plain twin that finds every rate anew at every moment."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("numba")

from costmodel.compilation import standalone as standalone_module
from costmodel.compilation.standalone import standalone
from costmodel.simulation import step_kernel as step_events
from costmodel.simulation.step_kernel import BEGUN, DONE, LOAD, START, STREAMS, TIME, WAIT, WORK_LOAD

WORK = 0
"""What a rank does besides starts and waits."""

quick = settings(deadline=None, max_examples=60, derandomize=True)


class Drawn:
    """Ranks' programs and their transfers, by name: what each stage does, and for each transfer who takes part.

    A transfer is (stages that start it, receiving stage or None, stream, label of each replica, time, load, beside, slowdown).
    """

    def __init__(self, stages, replicas, programs, transfers):
        self.stages, self.replicas, self.programs, self.transfers = stages, replicas, programs, transfers

    def group(self, k, u):
        starters, _, _, labels, *_ = self.transfers[k]
        return frozenset((s, v) for s in starters for v in range(self.replicas) if labels[v] == labels[u])


def twin(drawn):
    """Start and end of every entry of every rank, and of every transfer of every group."""
    ranks = list(itertools.product(range(drawn.stages), range(drawn.replicas)))
    place, entered, left_entry = dict.fromkeys(ranks, 0), {}, {}
    work, queue = {}, {(rank, stream): [] for rank in ranks for stream in range(STREAMS)}
    flying, begun, done = {}, {}, {}
    now = 0.0
    while True:
        moving = True
        while moving:  # all that takes no time
            moving = False
            for s, u in ranks:
                if place[s, u] == len(drawn.programs[s]):
                    continue
                code, what = drawn.programs[s][place[s, u]]
                key = s, u, place[s, u]
                entered.setdefault(key, now)
                if code == WORK:
                    if (s, u) not in work:
                        work[s, u] = what[0][u]
                        moving = True
                    continue
                if code == START:
                    queue[(s, u), drawn.transfers[what][2]].append(what)
                elif (what, drawn.group(what, u)) not in done:
                    continue
                left_entry[key] = now
                place[s, u] += 1
                moving = True
            for k, u in itertools.product(range(len(drawn.transfers)), range(drawn.replicas)):
                group, stream = drawn.group(k, u), drawn.transfers[k][2]
                if (k, group) not in begun and all(queue[member, stream][:1] == [k] for member in group):
                    begun[k, group] = now
                    flying[k, group] = drawn.transfers[k][4]
                    moving = True
        speeds = rates(drawn, ranks, place, work, flying)
        ends = [(left / speeds[item] if speeds[item] else np.inf, item) for item, left in (*work.items(), *flying.items())]
        if not ends:
            return entered, left_entry, begun, done
        wait = max(min(end for end, _ in ends), 0.0)
        now += wait
        for items in (work, flying):
            for item in list(items):
                items[item] -= wait * speeds[item]
                if items[item] > 1e-12:
                    continue
                del items[item]
                if items is work:
                    left_entry[(*item, place[item])] = now
                    place[item] += 1
                else:
                    done[item] = now
                    for member in item[1]:
                        queue[member, drawn.transfers[item[0]][2]].pop(0)


def rates(drawn, ranks, place, work, flying):
    """Progress in a second of all that is under way, by the rules in words."""
    found, limits = {}, {item: [] for item in flying}
    for s, u in ranks:
        mine = [(item, drawn.transfers[item[0]]) for item in flying if (s, u) in item[1]]
        demand = [sum(move[5][level] / move[4] for _, move in mine) for level in range(3)]
        share, load, paced, at_work = 0.0, [0.0] * 3, False, (s, u) in work
        if at_work:
            times, exchange, loads, paced = drawn.programs[s][place[s, u]][1]
            share = exchange / times[u]
            load = [one / times[u] for one in loads]
        # a second of work spends `calm` beside computing and `shared` on its own exchange
        own = [min(1.0, one / share) if share else 0.0 for one in load]
        calm = 1.0 - share
        shared = share * max([1.0, *(a + b for a, b in zip(own, demand, strict=True) if a and b)])
        drawn_out = max([1.0, *(move[7] for _, move in mine)]) if paced else 1.0
        if at_work:
            found[s, u] = 1.0 / ((calm + shared) * drawn_out)
        for item, move in mine:
            limit = move[6] if paced else 1.0
            for level in range(3):
                if not move[5][level]:
                    continue
                hidden = max(0.0, load[level] - share * own[level]) / calm if calm else 0.0
                in_calm = min(1.0, max(0.0, 1.0 - hidden) / demand[level])
                taken = own[level] * share / shared if shared else 0.0
                in_shared = min(1.0, (1.0 - taken) / demand[level])
                limit = min(limit, (calm * in_calm + shared * in_shared) / (calm + shared))
            limits[item].append(limit)
    return found | {item: min(values) for item, values in limits.items()}


def played(drawn):
    """What the kernel makes of the same."""
    programs = [entry for program in drawn.programs for entry in program]
    offsets = np.concatenate([[0], np.cumsum([len(program) for program in drawn.programs])]).astype(np.int64)
    works = [what for code, what in programs if code == WORK]
    lines = np.cumsum([code == WORK for code, _ in programs]) - 1
    duration = np.zeros((drawn.replicas, len(programs)))
    worked = [code == WORK for code, _ in programs]
    duration[:, worked] = np.array([work[0] for work in works]).reshape(-1, drawn.replicas).T
    first = step_events.KernelPrograms(
        offsets, np.array([line if code == WORK else code for line, (code, _) in zip(lines, programs, strict=True)]),
        np.array([-1 if code == WORK else what for code, what in programs], dtype=np.int64), duration,
        np.array([[work[1], *work[2], work[3]] for work in works], dtype=float).reshape(-1, 5),
    )  # fmt: skip
    names, instance = [], np.zeros((len(drawn.transfers), drawn.replicas), dtype=np.int64)
    for k, u in itertools.product(range(len(drawn.transfers)), range(drawn.replicas)):
        key = k, drawn.group(k, u)
        if key not in names:
            names.append(key)
        instance[k, u] = names.index(key)
    members = [[s * drawn.replicas + u for s, u in sorted(group)] for _, group in names]
    receiver = [-1 if drawn.transfers[k][1] is None else drawn.transfers[k][1] * drawn.replicas + min(group)[1]
                for k, group in names]  # fmt: skip
    order = [
        [what for code, what in program if code == START and drawn.transfers[what][2] == stream]
        for program in drawn.programs for stream in range(STREAMS)
    ]  # fmt: skip
    columns = list(zip(*drawn.transfers, strict=True)) or [()] * 8
    prices = np.column_stack([np.array(columns[4]), np.array(columns[5]).reshape(-1, 3), columns[6], columns[7]]).astype(float)
    second = step_events.KernelTransfers(
        np.arange(len(drawn.transfers)), prices, np.array(columns[2], dtype=np.int64), instance,
        np.array([k for k, _ in names], dtype=np.int64), np.array([*itertools.chain(*members)], dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(group) for group in members])]).astype(np.int64),
        np.array(receiver, dtype=np.int64), np.array([*itertools.chain(*order)], dtype=np.int64),
        np.concatenate([[0], np.cumsum([len(stream) for stream in order])]).astype(np.int64),
    )  # fmt: skip
    return step_events.played(first, second, drawn.replicas), names, first, second


@st.composite
def questions(draw):
    """Programs that end: what they wait for was started before, in one order of all."""
    stages, replicas = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    second, part = st.floats(0.01, 3.0), st.floats(0.0, 1.0)
    programs, transfers, pending = [[] for _ in range(stages)], [], []
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["work", "work", "collective", "send", "pair", "wait"]))
        stage = draw(st.integers(0, stages - 1))
        if what == "work":
            times = [draw(second) for _ in range(replicas)]
            exchange = min(times) * draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
            load = [draw(part) * min(times) for _ in range(3)]
            programs[stage].append((WORK, (times, exchange, load, draw(st.booleans()))))
            continue
        if what == "wait":
            if pending:
                waiting, k = pending.pop(draw(st.integers(0, len(pending) - 1)))
                programs[waiting].append((WAIT, k))
            continue
        other = draw(st.integers(0, stages - 1))
        if other == stage and what != "collective":
            continue
        time, beside = draw(second), draw(st.sampled_from([0.0, 0.4, 1.0]))
        load = [draw(st.sampled_from([0.0, 0.5, 1.0])) * time for _ in range(3)]
        alone, k = list(range(replicas)), len(transfers)
        labels = [draw(st.integers(0, 1)) for _ in alone] if what == "collective" else alone
        starters = (stage, other) if what == "pair" else (stage,)
        stream = {"collective": draw(st.integers(0, 1)), "pair": 2, "send": 3 + (other < stage)}[what]
        receiver, slowdown = other if what == "send" else None, draw(st.sampled_from([1.0, 1.3]))
        transfers.append((starters, receiver, stream, labels, time, load, beside, slowdown))
        for starter in starters:
            programs[starter].append((START, k))
        pending += [(other, k)] if what == "send" else [(starter, k) for starter in starters]
    for waiting, k in pending:
        programs[waiting].append((WAIT, k))
    for program in programs:
        program.append((WORK, ([0.5] * replicas, 0.0, [0.0] * 3, False)))
    return Drawn(stages, replicas, programs, transfers)


@pytest.mark.slow
@quick
@given(questions())
def test_the_kernel_and_its_twin_agree(drawn):
    entered, ended, begun, done = twin(drawn)
    out, names, *_ = played(drawn)
    offsets = np.concatenate([[0], np.cumsum([len(program) for program in drawn.programs])])
    for (s, u, e), at in ended.items():
        assert out.end[u, offsets[s] + e] == pytest.approx(at, abs=1e-9)
        assert out.start[u, offsets[s] + e] == pytest.approx(entered[s, u, e], abs=1e-9)
    for i, name in enumerate(names):
        assert out.times[i, BEGUN] == pytest.approx(begun[name], abs=1e-9)
        assert out.times[i, DONE] == pytest.approx(done[name], abs=1e-9)


@quick
@given(questions())
def test_pieces_of_constant_rate_add_up_to_what_was_to_be_done_and_no_link_carries_more_than_it_can(drawn):
    out, names, programs, moves = played(drawn)
    ranks = drawn.stages * drawn.replicas
    worked, moved = np.zeros_like(programs.duration), np.zeros(len(names))
    changes = {(rank, level): [] for rank in range(ranks) for level in range(3)}
    for (owner, entry), (since, until, rate) in zip(out.owner, out.piece, strict=True):
        if owner >= 0:
            replica = owner % drawn.replicas
            worked[replica, entry] += (until - since) * rate
            flow = rate * programs.works[programs.work[entry], WORK_LOAD : WORK_LOAD + 3] / programs.duration[replica, entry]
            carrying = [owner]
        else:
            i = -1 - owner
            price = moves.prices[moves.price[moves.of[i]]]
            moved[i] += (until - since) * rate
            flow = rate * price[LOAD : LOAD + 3] / price[TIME]
            carrying = moves.members[moves.places[i] : moves.places[i + 1]]
        for rank, level in itertools.product(carrying, range(3)):
            changes[rank, level] += [(since, flow[level]), (until, -flow[level])]
    assert worked == pytest.approx(programs.duration, abs=1e-9)
    assert moved == pytest.approx(moves.prices[moves.price[moves.of], TIME], abs=1e-9)
    for events in changes.values():
        events.sort()
        times, flows = np.array([at for at, _ in events]), np.cumsum([change for _, change in events])
        assert (flows[:-1][np.diff(times) > 1e-9] <= 1.0 + 1e-9).all()


def test_a_play_without_its_pieces_ends_at_the_same_time():
    drawn = Drawn(1, 1, [[(WORK, ([1.0], 0.0, [0.0] * 3, True)), (WORK, ([2.0], 0.0, [0.0] * 3, True))]], [])
    out, _, *asked = played(drawn)
    without = step_events.played(*asked, 1, kept=False)
    assert len(out.piece) == 2 and len(without.piece) == 0
    assert without.end.tolist() == out.end.tolist() == [[1.0, 3.0]]


def test_machine_code_and_python_play_alike():
    move = ((0, 1), None, 2, [0], 1.0, [0.5] * 3, 1.0, 1.0)
    work = (WORK, ([1.0], 0.5, [0.7] * 3, True))
    drawn = Drawn(2, 1, [[(START, 0), work, (WAIT, 0)], [work, (START, 0), work, (WAIT, 0)]], [move])
    out, names, programs, moves = played(drawn)
    again = step_events.Played(*(np.full_like(column, -1) for column in out))
    assert step_events.play(programs, moves, again, step_events.idle(2, len(names)), 1) == len(out.piece)
    for column, twice in zip(out, again, strict=True):
        assert column.tolist() == twice.tolist()


def test_ranks_that_wait_for_ever_are_told_apart():
    move = ((0, 1), None, 2, [0], 1.0, [0.0] * 3, 1.0, 1.0)
    drawn = Drawn(2, 1, [[(START, 0), (WAIT, 0)], [(WAIT, 0)]], [move])
    assert played(drawn)[0] is None


def test_what_little_is_played_is_played_plainly_until_code_is_kept(tmp_path, monkeypatch):
    from costmodel.compilation import cache, machine_code

    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "cache_folder", lambda: tmp_path)
    asked = []

    def doubled(numbers, out):
        asked.append(len(numbers))
        return len(numbers)

    loop = standalone(doubled, lambda numbers, out: len(numbers), 5)
    compiled = []
    monkeypatch.setattr(standalone_module, "_loaded", lambda *_: lambda *__: compiled.append(1))
    for many in (3, 2, 1):
        loop(np.zeros(many), np.zeros(many))
    assert asked == [3, 2] and compiled == [1]


def halved(numbers, by, out):
    """Something to do that divides, after it has written."""
    out[0] = 7.0
    out[1] = numbers[0] / by[0]
    return len(numbers)


def test_what_divides_by_nothing_is_begun_anew_by_machine_code(monkeypatch):
    loop = standalone(halved, lambda *_: 1, 10)
    numbers, by, out = np.array([3.0]), np.array([2.0]), np.zeros(2)
    assert loop(numbers, by, out) == 1 and out.tolist() == [7.0, 1.5]
    found = []
    monkeypatch.setattr(standalone_module, "_loaded", lambda *_: lambda *__: found.append(out.tolist()))
    out[:] = 0.0
    loop(numbers, by * 0.0, out)
    assert found == [[0.0, 0.0]]
