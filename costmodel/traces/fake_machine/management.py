"""Answers what programs ask ``nvidia-smi``, where they start it to log or look at the GPUs that aren't there."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from costmodel.traces.fake_machine.management import answer
print(answer(sys.argv[1:], {device!r}, {gpus!r}))
"""
MiB = 2**20


def provided(folder: Path, device: Mapping[str, Any], gpus: int) -> None:
    """Put a program of this name into a folder.

    Parameters
    ----------
    folder : which is made
    device : name, memory, capability and multiprocessors of a GPU
    gpus : of a server
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(SCRIPT.format(python=sys.executable, root=str(ROOT), device=dict(device), gpus=gpus))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def answer(words: Sequence[str], device: Mapping[str, Any], gpus: int) -> str:
    """What the program prints: the fields that ``--query-gpu`` names of each GPU, or else a line for each.

    Parameters
    ----------
    words : that it is given
    device, gpus : as `provided`

    Examples
    --------
    >>> facts = {"name": "NVIDIA H100-SXM", "memory": 80 * 2**30, "capability": (9, 0), "multiprocessors": 132}
    >>> print(answer(["--query-gpu=index,memory.total,fan.speed", "--format=csv,noheader"], facts, 2))
    0, 81920 MiB, [N/A]
    1, 81920 MiB, [N/A]
    """
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    asked = [name.strip() for name in options.get("--query-gpu", "").split(",") if name.strip()]
    form = options.get("--format", "")
    unit, total = "" if "nounits" in form else " MiB", int(device["memory"]) // MiB
    lines = [] if not asked or "noheader" in form else [", ".join(asked)]
    for place in range(gpus):
        known = {
            "index": place, "name": device["name"], "gpu_name": device["name"], "count": gpus, "memory.total": f"{total}{unit}",
            "memory.free": f"{total}{unit}", "memory.used": f"0{unit}", "compute_cap": ".".join(map(str, device["capability"])),
            "utilization.gpu": "0" + unit.replace("MiB", "%"), "driver_version": "570.124.06",
            "pci.bus_id": f"00000000:{place:02X}:00.0",
        }  # fmt: skip
        if asked:
            lines.append(", ".join(str(known.get(name, "[N/A]")) for name in asked))
        elif "-L" in words:
            lines.append(f"GPU {place}: {device['name']}")
        else:
            lines.append(f"|   {place}  {device['name']}  |  0MiB / {total}MiB  |  0%  Default |")
    return "\n".join(lines)
