"""The device guard that lets a PyTorch without CUDA accept tensors on "cuda": compiled once, loaded before torch."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from costmodel.text.errors import NotModelled

SOURCE = Path(__file__).with_name("guard.cpp")
COMPILERS = ("c++", "g++", "clang++")


def torch_folder() -> Path:
    """Where PyTorch is installed, without importing it.

    Raises
    ------
    NotModelled
        where it isn't
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NotModelled("tracing code needs PyTorch: pip install 'costmodel[trace]'")
    return Path(spec.origin).parent


def library(cache: Path) -> Path:
    """The compiled guard; compiled now unless it is in the cache.

    Parameters
    ----------
    cache : folder that keeps it

    Raises
    ------
    NotModelled
        where no compiler is there or it fails, in its own words
    """
    torch = torch_folder()
    version = importlib.metadata.version("torch")
    digest = hashlib.sha256(SOURCE.read_bytes() + version.encode() + sys.version.encode()).hexdigest()[:16]
    made = cache / f"fake-cuda-{digest}.so"
    if made.exists():
        return made
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NotModelled(
            f"tracing code needs a C++ compiler once, for forty lines that let PyTorch accept devices that aren't there: "
            f"none of {', '.join(COMPILERS)} is on PATH (Debian: apt-get install g++; or name one by CXX)"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        part = Path(folder) / made.name
        command = [
            compiler, "-shared", "-fPIC", "-O0", "-std=c++20", "-w", f"-I{torch / 'include'}",
            f"-I{torch / 'include/torch/csrc/api/include'}", str(SOURCE), "-o", str(part), f"-L{torch / 'lib'}", "-lc10",
            "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}",
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise NotModelled(f"the C++ compiler {compiler} fails on {SOURCE.name}: {run.stderr.strip()[-400:]}")
        part.rename(made)
    return made


def load(cache: Path, gpus: int, local_rank: int) -> ctypes.PyDLL:
    """Load the guard into this process.

    Parameters
    ----------
    cache : folder that keeps what was compiled
    gpus : of one server
    local_rank : the one that this process calls its own
    """
    path = library(cache)
    lib = torch_folder() / "lib"
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(lib / name), mode=ctypes.RTLD_GLOBAL)
    guard = ctypes.PyDLL(str(path))
    guard.costmodel_stream.restype = ctypes.c_int64
    guard.costmodel_set_stream.argtypes = [ctypes.c_int64]
    guard.costmodel_devices(gpus, local_rank)
    return guard


_LOADED: list[ctypes.PyDLL] = []


def prepared(cache: Path, gpus: int, local_rank: int) -> ctypes.PyDLL:
    """The guard of this process; loaded now unless it was before.

    Parameters
    ----------
    cache, gpus, local_rank : as `load`

    Raises
    ------
    NotModelled
        where PyTorch was imported first: it asks for its GPUs once
    """
    if not _LOADED:
        if "torch" in sys.modules:
            raise NotModelled(
                "PyTorch was imported before the GPUs that aren't there: call `costmodel.prepare_tracing()` before "
                "`import torch`, or trace a script by `costmodel trace`"
            )
        _LOADED.append(load(cache, gpus, local_rank))
    _LOADED[0].costmodel_devices(gpus, local_rank)
    return _LOADED[0]
