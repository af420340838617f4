"""``python ask.py SCRIPT FOLDER``: a tool's answers to the records on stdin, a line of JSON each.

A script has a function ``prepare(folder)``, which loads its tool and returns what answers a record: with ``step_time_s`` [s] (and
``low_s`` and ``high_s`` where the tool says how sure it is), ``peak_bytes``, or both. What it raises is why the tool refuses. It
runs under any Python, which this library isn't asked for.
"""

import contextlib
import io
import json
import logging
import sys
import time
from importlib import import_module
from pathlib import Path


def main(script: str, folder: str) -> None:
    """Ask the tool about every record, and say beside each answer how long it took [s]."""
    sys.path[:0] = [str(Path(script).parent), folder]
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):
        answer = import_module(Path(script).stem).prepare(folder)
    for record in map(json.loads, sys.stdin):
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                said = answer(record)
            except Exception as error:  # tools have their own
                said = {"refused": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"id": record["id"], "seconds": time.perf_counter() - start, **said}), flush=True)


main(*sys.argv[1:])
