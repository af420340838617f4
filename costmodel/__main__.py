"""``python -m costmodel``, and the command ``costmodel``: whatever is loaded, an interruption ends in one line."""

import gc
import os
import signal  # and nothing that takes long to load: until the handler is there an interruption is Python's


def _leave(*_: object) -> None:
    """Leave at once: an exception would meet C code that reports it in its own words, or a class being made."""
    os.write(2, b"costmodel: interrupted\n")
    os._exit(130)


def run() -> None:
    """Answer the command line of this process and leave it."""
    gc.set_threshold(100_000)  # what an answer is made of lives as long as the process: there is little to collect
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait for the next small matrix keep all cores busy
    if callable(signal.getsignal(signal.SIGINT)):  # the parent has not turned interruptions off
        signal.signal(signal.SIGINT, _leave)
    from costmodel.cli import run as answer

    answer()


if __name__ == "__main__":
    run()
