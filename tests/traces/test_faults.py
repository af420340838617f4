"""Faults that are planted in records by hand are found by line; the same records without them have none."""

import pytest

from costmodel import load_cluster
from costmodel.text.errors import InvalidValue
from costmodel.text.units import GiB, MiB
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.faults import KINDS, faults_of
from costmodel.traces.record import DEVICE_TO_HOST, HOST_TO_DEVICE, NOWHERE, Trace

NODE = load_cluster("dgx-h100", gpus=8)
PARAMETERS = ("a", "b", "c")
SIZE = 1024
NBYTES = 2 * SIZE**2


class Script:
    """Data parallelism by hand over two ranks, each a role: weights, a forward and a backward pass, sums, an update.

    Methods are what a plant changes.
    """

    dtype, steps = "bfloat16", 3

    def __init__(self, rank):
        self.rank, self.builder = rank, RoleBuilder(rank)
        self.world, self.channel = self.builder.group(range(2)), self.builder.stream("nccl")
        self.weights = {name: self.born(NBYTES, "weight", name) for name in PARAMETERS}
        for name, storage in self.weights.items():
            self.builder.parameter(name, (SIZE, SIZE), self.dtype, storage=storage)

    def born(self, nbytes, kind, parameter="", line="m.py:1", dtype="bfloat16"):
        return self.builder.storage_born(nbytes, kind=kind, parameter=parameter, dtype=dtype, line=line)

    def product(self, phase, reads=(), writes=(), line="m.py:2", dtype=None, size=SIZE):
        operands = [dtype or self.dtype] * 2
        self.builder.kernel("aten.mm", [(size, size)] * 2, operands, 4 * size**2, 2 * size**2, 2 * size**3, phase=phase,
                            module="layer", line=line, reads=reads, writes=writes)  # fmt: skip

    def before(self):
        """At the start of a step."""
        batch = self.born(8 * SIZE, "input", dtype="int64")
        self.builder.kernel(HOST_TO_DEVICE, bytes_read=8 * SIZE, bytes_written=8 * SIZE, writes=[batch], line="t.py:1")
        self.builder.storage_died(batch)

    def between(self):
        """Between the passes."""

    def names(self):
        return PARAMETERS

    def summed(self, name, storage):
        done = self.builder.transaction("all-reduce", NBYTES, self.dtype, self.world, stream=self.channel, parameter=name,
                                        storage=storage, phase="backward", line="t.py:20")  # fmt: skip
        self.builder.stream_wait(done)

    def after(self):
        """After the update."""
        self.builder.host_wait(line="t.py:40", stream=NOWHERE)

    def role(self):
        for _ in range(self.steps):
            self.before()
            for name in PARAMETERS:
                self.product("forward", [self.weights[name]])
            self.between()
            for name in self.names():
                gradient = self.born(NBYTES, "gradient", name)
                self.product("backward", [self.weights[name]], [gradient])
                self.builder.gradient(name)
                self.summed(name, gradient)
                self.builder.storage_died(gradient)
            self.after()
            self.builder.step_boundary()
        return self.builder.role()


def found(*scripts, **asked):
    return faults_of(Trace(roles=tuple(script.role() for script in scripts), world_size=2), NODE, **asked)


def one(faults, kind, line):
    assert [fault.kind for fault in faults] == [kind], faults
    assert faults[0].line == line
    assert line in repr(faults[0]) or not line
    return faults[0]


def test_a_clean_script_has_no_fault():
    assert found(Script(0), Script(1)) == ()


class Skips(Script):
    def names(self):
        return ("a", "c")


class Reorders(Script):
    def names(self):
        return ("b", "a", "c")


class Other(Script):
    """Sums another number of bytes of the second parameter."""

    nbytes, width, group = NBYTES // 2, "bfloat16", range(2)

    def summed(self, name, storage):
        if name != "b":
            return super().summed(name, storage)
        builder = self.builder
        group = builder.group(self.group)
        done = builder.transaction(self.op, self.nbytes, self.width, group, stream=self.channel, parameter=name, storage=storage,
                                   phase="backward", line="t.py:21")  # fmt: skip
        builder.stream_wait(done)

    op = "all-reduce"


class OtherDtype(Other):
    nbytes, width = NBYTES, "float16"


class OtherOperation(Other):
    nbytes, op = NBYTES, "reduce-scatter"


class OtherGroup(Other):
    nbytes, group = NBYTES, (1,)


def test_a_parameter_that_one_rank_skips_is_the_first_transaction_in_which_they_disagree():
    first, *others = found(Script(0), Skips(1))
    assert first.kind == "no partner" or "parameter" in first.sentence
    assert first.line == "t.py:20"
    assert {fault.kind for fault in others} <= {"no gradient"}


def test_the_same_sizes_in_another_order_are_told_by_their_parameters():
    fault = one(found(Script(0), Reorders(1)), "ranks disagree", "t.py:20")
    assert "the parameter differs" in fault.sentence and "transaction 1" in fault.sentence


@pytest.mark.parametrize(
    ("script", "words"),
    [(Other, "number of bytes"), (OtherDtype, "dtype"), (OtherOperation, "operation")],
)
def test_another_size_dtype_or_operation_is_named_with_both_sides(script, words):
    fault = one(found(Script(0), script(1)), "ranks disagree", "t.py:20")
    assert words in fault.sentence and "t.py:21" in fault.sentence and "transaction 2" in fault.sentence


def test_a_wrong_group_leaves_a_partner_waiting():
    fault = next(fault for fault in found(Script(0), OtherGroup(1)) if fault.kind in ("no partner", "ranks disagree"))
    assert fault.line == "t.py:20"


def test_a_wait_for_ranks_that_wait_for_this_one_is_named():
    def role(rank):
        builder = RoleBuilder(rank)
        for op in ("send", "recv"):
            done = builder.transaction(op, MiB, "bfloat16", peer=1 - rank, stream=builder.stream("p2p"), line=f"p.py:{op}")
            builder.host_wait(event=done, stream=1)
        return builder.role()

    faults = faults_of(Trace(roles=(role(0), role(1)), world_size=2), NODE)
    assert faults[0].kind == "no partner" and faults[0].line == "p.py:send" and "wait for this one" in faults[0].sentence


class Unused(Script):
    def __init__(self, rank):
        super().__init__(rank)
        self.builder.parameter("unused.weight", (SIZE, SIZE), self.dtype, storage=self.born(NBYTES, "weight", line="m.py:9"))


def test_a_parameter_without_a_gradient_is_named():
    fault = one(found(Unused(0), Unused(1)), "no gradient", "m.py:9")
    assert fault.module == "unused.weight" and fault.bytes == NBYTES


class Wide(Script):
    def summed(self, name, storage):
        copy = self.born(2 * NBYTES, "temporary", dtype="float32")
        done = self.builder.transaction("all-reduce", 2 * NBYTES, "float32", self.world, stream=self.channel, parameter=name,
                                        storage=copy, phase="backward", line="t.py:22")  # fmt: skip
        self.builder.stream_wait(done)
        self.builder.storage_died(copy)


class Buckets(Wide):
    """As wide, in buckets of a framework: it asked for it."""

    def born(self, nbytes, kind, *rest, **more):
        return super().born(nbytes, "bucket" if kind == "temporary" else kind, *rest, **more)


def test_gradients_in_32_bits_that_nobody_asked_for_cost_half_of_their_bytes():
    fault = next(fault for fault in found(Wide(0), Wide(1)) if fault.rank == 0)
    assert fault.kind == "wide exchange" and fault.line == "t.py:22"
    assert fault.bytes == 3 * NBYTES and fault.seconds > 0.0
    assert found(Buckets(0), Buckets(1)) == ()


class WideProducts(Script):
    def between(self):
        self.product("forward", dtype="float32", line="m.py:30")


def test_products_in_32_bits_of_a_run_in_16_are_named_with_what_they_cost():
    faults = found(WideProducts(0), WideProducts(1))
    assert {(fault.kind, fault.line) for fault in faults} == {("wide product", "m.py:30")} and faults[0].seconds > 0.0

    class Whole(Script):
        dtype = "float32"

    assert found(Whole(0), Whole(1)) == ()


class Gathers(Script):
    times, read, room = 1, True, 2 * NBYTES

    def before(self):
        super().before()
        whole = self.born(self.room, "bucket")
        for _ in range(self.times):
            done = self.builder.transaction("all-gather", 2 * NBYTES, self.dtype, self.world, stream=self.channel, parameter="a",
                                            storage=whole, phase="forward", line="t.py:5")  # fmt: skip
            self.builder.stream_wait(done)
        copy = self.born(2 * NBYTES, "temporary")
        self.builder.kernel("aten.split_with_sizes_copy", phase="forward", reads=[whole], writes=[copy], line="t.py:6")
        if self.read:
            self.product("forward", [copy])
        self.builder.storage_died(copy)
        self.builder.storage_died(whole)


class GathersInALoop(Gathers):
    times = 4


class GathersInVain(Gathers):
    read = False


class GathersOfBuckets(Gathers):
    """Two fill a buffer side by side."""

    times, room = 2, 4 * NBYTES


class GathersInVainAtFirst(Gathers):
    """As a program does that looks at its weights once."""

    passes = 0

    @property
    def read(self):
        self.passes += 1
        return self.passes > 1


def test_gathers_that_nobody_reads_or_that_come_again_before_are_named():
    for script in (Gathers, GathersOfBuckets, GathersInVainAtFirst):
        assert found(script(0), script(1)) == ()
    for script, count in ((GathersInALoop, 3), (GathersInVain, 1)):
        fault = next(fault for fault in found(script(0), script(1)) if fault.rank == 0)
        assert (fault.kind, fault.line) == ("unused gather", "t.py:5")
        assert fault.bytes == count * 2 * NBYTES and f"{count * (script.steps - 1)} gather" in fault.sentence


class Item(Script):
    def between(self):
        self.builder.host_wait(line="t.py:12", stream=NOWHERE)


class Copies(Script):
    op = DEVICE_TO_HOST

    def between(self):
        self.builder.kernel(self.op, bytes_read=NBYTES, bytes_written=NBYTES, line="t.py:13", phase="forward")
        self.builder.host_wait(line="t.py:13")


class CopiesBack(Copies):
    op = HOST_TO_DEVICE


def test_waits_and_copies_of_the_host_inside_a_step_are_named_and_those_after_it_are_not():
    fault = one(found(Item(0), Script(1)), "host wait", "t.py:12")
    assert fault.seconds > 0.0
    for script in (Copies, CopiesBack):
        fault = one(found(script(0), Script(1)), "host copy", "t.py:13")
        assert fault.bytes == NBYTES and fault.seconds > NBYTES / NODE.device.host_bandwidth


class Norms(Script):
    """Asks for the norm of each gradient between the passes and the update."""

    tensors = 9

    def after(self):
        for _ in range(self.tensors):
            self.builder.host_wait(line="t.py:30", stream=NOWHERE)
        self.product("optimizer")
        super().after()


class Scales(Norms):
    tensors = 1


class LogsMuch(Script):
    """After the update."""

    def after(self):
        self.product("optimizer")
        for _ in range(20):
            self.builder.host_wait(line="t.py:41", stream=NOWHERE)


def test_a_loop_that_waits_for_every_gradient_before_the_update_is_named_and_one_wait_there_is_not():
    assert "9 times" in one(found(Norms(0), Scales(1)), "host wait", "t.py:30").sentence
    assert found(Scales(0), LogsMuch(1)) == ()


class Zeroes(Script):
    """Zeroes its gradients in place of giving them up."""

    op = "aten._foreach_zero_"

    def role(self):
        self.gradients = [self.born(NBYTES, "gradient", name) for name in PARAMETERS]
        return super().role()

    def after(self):
        for gradient in self.gradients:
            self.builder.kernel(self.op, [(SIZE, SIZE)], [self.dtype], 0, NBYTES, line="t.py:42", writes=[gradient])
        super().after()


class Copies16(Zeroes):
    op = "aten._foreach_copy_"


class Empties(Script):
    def after(self):
        super().after()
        self.builder.empty_cache("t.py:43")


def test_gradients_that_are_zeroed_and_caches_that_are_emptied_are_named():
    assert one(found(Zeroes(0), Copies16(1)), "kept gradients", "t.py:42").bytes == 3 * NBYTES
    fault = one(found(Empties(0), Script(1)), "emptied cache", "t.py:43")
    assert fault.bytes >= NBYTES, "a step's tensors lie in memory that was asked for anew"


def test_a_checkpointed_model_in_evaluation_mode_is_named():
    trace = Trace(roles=(Script(0).role(), Script(1).role()), world_size=2, facts={"unused_checkpointing": "t.py:3"})
    assert [(fault.kind, fault.line) for fault in faults_of(trace, NODE)] == [("no recomputation", "t.py:3")]


class WaitsInALibrary(Script):
    def between(self):
        for line in ("t.py:12 (a.py:1)", "t.py:12 (b.py:2)", "t.py:12 (c.py:3)", "t.py:12 (d.py:4)"):
            self.builder.host_wait(line=line, stream=NOWHERE)


def test_waits_that_one_line_makes_in_several_of_a_library_are_told_together():
    fault = one(found(WaitsInALibrary(0), Script(1)), "host wait", "t.py:12")
    assert "4 times inside the step (a.py:1, b.py:2, c.py:3 and 1 more)" in fault.sentence


class Accumulates(Script):
    """Three micro-batches a step: gradients are summed after each, or after the last."""

    every, updates = True, False

    def role(self):
        for _ in range(self.steps):
            self.before()
            gradients = {name: self.born(NBYTES, "gradient", name) for name in PARAMETERS}
            for micro in range(3):
                for name in PARAMETERS:
                    self.product("forward", [self.weights[name]])
                for name, gradient in gradients.items():
                    self.product("backward", [self.weights[name]], [gradient])
                    if self.every or micro == 2:
                        self.summed(name, gradient)
                if self.updates:
                    self.product("optimizer")
            for name, gradient in gradients.items():
                self.builder.gradient(name)
                self.builder.storage_died(gradient)
            self.after()
            self.builder.step_boundary()
        return self.builder.role()


class AccumulatesAlone(Accumulates):
    every = False


class UpdatesEach(Accumulates):
    updates = True


def test_gradients_that_are_summed_after_every_micro_batch_cost_all_sums_but_the_last():
    fault = one(found(Accumulates(0), Accumulates(1)), "repeated sum", "t.py:20")
    assert fault.bytes == 2 * len(PARAMETERS) * NBYTES and fault.seconds > 0.0
    assert "each of 3 micro-batches" in fault.sentence
    assert found(AccumulatesAlone(0), AccumulatesAlone(1)) == () == found(UpdatesEach(0), UpdatesEach(1))
    trace = Trace(roles=(Accumulates(0).role(), Accumulates(1).role()), world_size=2, facts={"framework": "deepspeed"})
    assert faults_of(trace, NODE) == ()


class Recompiles(Script):
    def between(self):
        self.builder.recompilation("t.py:14")


def test_code_that_is_compiled_again_after_the_first_step_is_named():
    assert "2 times" in one(found(Recompiles(0), Script(1)), "recompilation", "t.py:14").sentence


class Full(Script):
    def between(self):
        self.builder.storage_died(self.born(90 * GiB, "activation", line="m.py:50"))


def test_out_of_memory_is_named_at_its_line():
    fault = one(found(Full(0), Script(1)), "out of memory", "m.py:50")
    assert fault.bytes > 10 * GiB and "outside the allocator" in fault.sentence  # 90 GiB are needed beside that, of 80


class Keeps(Script):
    """Keeps what a line makes in every step, or in the first alone."""

    once = False

    def role(self):
        self.kept = 0
        return super().role()

    def between(self):
        if not (self.once and self.kept):
            self.kept = self.born(MiB, "temporary", line="m.py:60")


class KeepsOne(Keeps):
    once = True


class LoadsAhead(Script):
    """Holds a step's batch and the next."""

    def role(self):
        self.batches = []
        return super().role()

    def between(self):
        while len(self.batches) < 3:
            self.batches.append(self.born(MiB, "temporary", line="m.py:60"))
        self.builder.storage_died(self.batches.pop(0))


def test_what_every_step_makes_and_nobody_gives_up_fills_memory():
    fault = one(found(Keeps(0), Script(1)), "memory grows", "m.py:60")
    assert fault.bytes == MiB and "1 tensor of 1.0 MiB that a step makes is still held after the next" in fault.sentence
    assert found(KeepsOne(0), Script(1)) == found(LoadsAhead(0), Script(1)) == ()


def stages(work):
    roles = []
    for rank, products in enumerate(work):
        builder = RoleBuilder(rank)
        for _ in range(2):
            if rank:
                builder.stream_wait(builder.transaction("recv", MiB, "bfloat16", peer=rank - 1, stream=builder.stream("p2p")))
            for _ in range(products):
                builder.kernel("aten.mm", [(4096, 4096)] * 2, ["bfloat16"] * 2, flop=2 * 4096**3, phase="forward", line="s.py:3")
            if rank + 1 < len(work):
                builder.transaction("send", MiB, "bfloat16", peer=rank + 1, stream=builder.stream("p2p"))
            builder.step_boundary()
        roles.append(builder.role())
    return Trace(roles=tuple(roles), world_size=len(work))


def test_stages_out_of_balance_are_named_with_what_they_cost():
    assert faults_of(stages([4, 4, 4, 5]), NODE) == ()
    fault = one(faults_of(stages([4, 4, 4, 12]), NODE), "unbalanced stages", "s.py:3")
    assert fault.rank == 3 and "2.00 times" in fault.sentence and fault.seconds > 0.0


def test_kinds_are_asked_for_by_name_and_what_stops_a_run_comes_first():
    class Both(Item):
        names = Skips.names

    assert found(Script(0), Both(1))[0].kind in ("ranks disagree", "no partner")
    assert [fault.kind for fault in found(Script(0), Both(1), kinds=["host wait"])] == ["host wait"]
    with pytest.raises(InvalidValue, match="kinds"):
        found(Script(0), Script(1), kinds=["hangs"])
    assert len(set(KINDS)) == len(KINDS)
