"""Launch files of training frameworks: read into a plan, priced, and written."""

from costmodel.interop.launchers.logs import StepTimes, measured_run, read_step_times
from costmodel.interop.launchers.pricing import Launch, Priced, resolve
from costmodel.interop.launchers.reading import is_launch_file, read_launch
from costmodel.interop.launchers.writing import formats, runner, suffix, unsayable, write_launch, write_sweep

__all__ = [
    "Launch", "Priced", "StepTimes", "formats", "is_launch_file", "measured_run", "read_launch", "read_step_times", "resolve",
    "runner", "suffix", "unsayable", "write_launch", "write_sweep",
]  # fmt: skip
