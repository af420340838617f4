"""What failures, checkpoints to storage and restarts leave of a run's time."""

from __future__ import annotations

import dataclasses
import math

from costmodel.formulas.systems import reliability as formulas
from costmodel.text.checks import choice, kind, positive_int, real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

YEAR = 365.25 * 86400.0
INTERVALS = ("daly", "young")
MOST_INTERRUPTED = 30.0
"""Mean times between interruptions that a segment, or a restart, may last: beyond, a run never ends."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reliability:
    """How often a run stops, and what saving and restarting cost.

    Parameters
    ----------
    device_mtbf : mean time between failures of one GPU with its share of host and network [s]; None for no failures
    checkpoint_time : that a checkpoint stops the run [s]; given directly, or from `checkpoint_bytes`
    checkpoint_bytes : of one checkpoint [bytes]; None with `storage_bandwidth` for 14 bytes a parameter: weights in
        16 bits, master weights and Adam's moments in 32
    storage_bandwidth : at which all GPUs together write it [bytes/s]
    interval : work between two checkpoints [s], or ``"daly"`` or ``"young"`` for the best by their formulas
    restart : from a failure until work goes on: finding it, replacing the node, starting, loading [s]
    preemption_mtbf : mean time between preemptions of the whole run [s]; None for none
    preemption_restart : from a preemption until work goes on [s]; `restart` if not given

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Examples
    --------
    >>> Reliability(device_mtbf=5 * YEAR, checkpoint_time=30.0).mtbf(16384) / 3600  # doctest: +ELLIPSIS
    2.67...
    """

    device_mtbf: float | None = None
    checkpoint_time: float | None = None
    checkpoint_bytes: float | None = None
    storage_bandwidth: float | None = None
    interval: float | str = "daly"
    restart: float = 600.0
    preemption_mtbf: float | None = None
    preemption_restart: float | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        for field, least, most in (
            ("device_mtbf", 1.0, 1e12), ("checkpoint_time", 0.0, 1e7), ("checkpoint_bytes", 1.0, 1e18),
            ("storage_bandwidth", 1.0, 1e18), ("restart", 0.0, 1e7), ("preemption_mtbf", 1.0, 1e12),
            ("preemption_restart", 0.0, 1e7),
        ):  # fmt: skip
            if getattr(self, field) is not None:
                real(field, getattr(self, field), least, most)
        if self.checkpoint_time is not None and (self.checkpoint_bytes or self.storage_bandwidth) is not None:
            raise InvalidValue("checkpoint_time", self.checkpoint_time, "none beside checkpoint_bytes and storage_bandwidth")
        if self.checkpoint_bytes is not None and self.storage_bandwidth is None:
            raise InvalidValue("storage_bandwidth", None, "bytes a second, to write checkpoint_bytes")
        if self.preemption_restart is not None and self.preemption_mtbf is None:
            raise InvalidValue("preemption_mtbf", None, "seconds between preemptions, beside preemption_restart")
        if isinstance(self.interval, str):
            choice("interval", self.interval, INTERVALS)
        else:
            real("interval", self.interval, 1e-3, 1e10)

    def mtbf(self, devices: int) -> float:
        """Mean time between interruptions of a run on so many devices [s]; infinite without any."""
        causes = [] if self.device_mtbf is None else [float(formulas.system_mtbf(self.device_mtbf, float(devices)))]
        causes += [] if self.preemption_mtbf is None else [self.preemption_mtbf]
        if len(causes) == 2:
            return float(formulas.merged_mtbf(*causes))
        return causes[0] if causes else math.inf

    def mean_restart(self, devices: int) -> float:
        """Restart after an interruption, mean over failures and preemptions [s]."""
        after = self.restart if self.preemption_restart is None else self.preemption_restart
        if self.preemption_mtbf is None:
            return self.restart
        if self.device_mtbf is None:
            return after
        failures = formulas.system_mtbf(self.device_mtbf, float(devices))
        return float(formulas.merged_restart(failures, self.preemption_mtbf, self.restart, after))

    def write_time(self, parameters: float | None = None) -> float:
        """Time that a checkpoint stops the run [s].

        Parameters
        ----------
        parameters : of the model; needed where neither the time nor the bytes of a checkpoint are given
        """
        if self.checkpoint_time is not None:
            return self.checkpoint_time
        if self.storage_bandwidth is None:
            raise InvalidValue("checkpoint_time", None, "seconds that a checkpoint takes, or storage_bandwidth to write it")
        nbytes = self.checkpoint_bytes
        if nbytes is None:
            if parameters is None:
                raise InvalidValue("checkpoint_bytes", None, "bytes of a checkpoint, where no model tells them")
            nbytes = BYTES_PER_PARAMETER * parameters
        return float(formulas.checkpoint_time(nbytes, self.storage_bandwidth, 0.0))


BYTES_PER_PARAMETER = 14.0
"""Of a checkpoint: 2 of weights, 4 of master weights, 8 of Adam's moments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goodput:
    """Where a run's time goes; the four shares add up to one.

    Parameters
    ----------
    devices : of the run
    mtbf : mean time between interruptions [s]; infinite without any
    interval : work between two checkpoints [s]; infinite where none is written
    write_time : that a checkpoint stops the run [s]
    restart : after an interruption, mean [s]
    useful : share of the time that is work which counts: the goodput, or effective training time
    checkpointing : share in which checkpoints are written
    lost : share of work and checkpoints that interruptions threw away
    restarting : share in which the run restarts
    """

    devices: int
    mtbf: float
    interval: float
    write_time: float
    restart: float
    useful: float
    checkpointing: float
    lost: float
    restarting: float

    __repr__ = brief

    def time(self, useful_time: float) -> float:
        """Expected time of a run whose steps alone take `useful_time` [s]."""
        return useful_time / self.useful

    def deviation(self, useful_time: float) -> float:
        """Standard deviation over failures of the time of a run whose steps alone take `useful_time` [s]."""
        if math.isinf(self.mtbf):
            return 0.0
        known = (self.interval, self.write_time, self.restart, self.mtbf)
        return float(formulas.run_time_deviation(useful_time, *known))

    def interruptions(self, useful_time: float) -> float:
        """Expected interruptions of a run whose steps alone take `useful_time`."""
        return self.time(useful_time) / self.mtbf


def goodput(reliability: Reliability, devices: int, parameters: float | None = None) -> Goodput:
    """Share of a run's time that is work which counts, and what takes the rest.

    Interruptions come at random, independently of each other; each loses the work since the last checkpoint and costs
    a restart, which may be interrupted too. A checkpoint stops the run for its write time. Without any interruptions
    no checkpoint is written, unless the interval is a number.

    Parameters
    ----------
    reliability : how often the run stops, and what saving and restarting cost
    devices : of the run
    parameters : of the model, where the checkpoint's bytes follow from them

    Returns
    -------
    Goodput

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected, also where failures come so fast that a run never ends

    References
    ----------
    [daly2006]_; [dubey2024]_ section 3.3.4 and [jiang2024]_ section 6.3 publish above 90 % on 16,384 and 12,288 GPUs

    Examples
    --------
    Llama 3 405B: 466 interruptions in 54 days; 14 bytes a parameter at 2 TB/s; ten minutes to restart, as MegaScale has.

    >>> reliability = Reliability(device_mtbf=16384 * 54 * 86400 / 466, storage_bandwidth=2e12, restart=600.0)
    >>> round(goodput(reliability, 16384, parameters=405e9).useful, 3)
    0.92
    """
    kind("reliability", reliability, Reliability, "Reliability(device_mtbf=..., ...)")
    positive_int("devices", devices, 10**7)
    if parameters is not None:
        real("parameters", parameters, 1.0, 1e18)
    mtbf = reliability.mtbf(devices)
    needed = not math.isinf(mtbf) or not isinstance(reliability.interval, str)
    write_time = reliability.write_time(parameters) if needed else 0.0
    restart = reliability.mean_restart(devices)
    if isinstance(reliability.interval, str):
        interval = math.inf
        if not math.isinf(mtbf):
            best = formulas.daly_interval if reliability.interval == "daly" else formulas.young_interval
            interval = float(best(write_time, mtbf))
            if interval <= 0.0:
                raise InvalidValue("interval", reliability.interval, "seconds, where a checkpoint takes no time")
    else:
        interval = float(reliability.interval)
    shares = dict.fromkeys(("lost", "restarting"), 0.0)
    if math.isinf(mtbf):
        whole = 1.0 if math.isinf(interval) else interval + write_time
        useful, checkpointing = (1.0, 0.0) if math.isinf(interval) else (interval / whole, write_time / whole)
    else:
        if max(interval + write_time, restart) > MOST_INTERRUPTED * mtbf:
            longest = "interval" if interval + write_time > restart else "restart"
            value = max(interval, restart)
            raise InvalidValue(longest, value, f"far less than {MOST_INTERRUPTED:g} times the {mtbf:.3g} s between interruptions")
        whole = float(formulas.segment_time(interval, write_time, restart, mtbf))
        times = float(formulas.segment_interruptions(interval, write_time, mtbf))
        useful = float(formulas.goodput(interval, write_time, restart, mtbf))
        checkpointing = write_time / whole
        shares["lost"] = times * float(formulas.lost_work(interval, write_time, mtbf)) / whole
        shares["restarting"] = times * float(formulas.restart_time(restart, mtbf)) / whole
    return Goodput(
        devices=devices, mtbf=mtbf, interval=interval, write_time=write_time, restart=restart, useful=useful,
        checkpointing=checkpointing, **shares,
    )  # fmt: skip
