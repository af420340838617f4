"""Launch files of training frameworks: read into a plan, priced, and written."""

from costmodel.interop.launchers.logs import StepTimes, read_step_times
from costmodel.interop.launchers.pricing import Launch, Priced, resolve
from costmodel.interop.launchers.reading import is_launch_file, read_launch
from costmodel.interop.launchers.writing import formats, runner, suffix, write_launch, write_sweep

__all__ = [
    "Launch", "Priced", "StepTimes", "formats", "is_launch_file", "read_launch", "read_step_times", "resolve",
    "runner", "suffix", "write_launch", "write_sweep",
]  # fmt: skip
