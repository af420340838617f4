"""Runs a training script as torchrun would, on a rank of a cluster that isn't there; a file says which."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine.sandbox import Unreached

PACKAGES = (
    "torch", "torchvision", "transformers", "accelerate", "peft", "trl", "datasets", "deepspeed", "torchtitan", "megatron-core",
    "diffusers", "bitsandbytes", "triton", "liger-kernel", "transformer-engine",
)  # fmt: skip
"""Software whose version belongs to a trace."""
OF_THE_BUILD = ("missing kernel for cuda", "from the 'CUDA' backend", "compiled without cuDNN", "not compiled with CUDA")
"""Of errors where PyTorch has something in its builds with CUDA alone."""
OF_THE_HUB = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")
"""Errors of Hugging Face's packages where a file isn't in their cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What a process is to run, and as whom."""

    script: str  # file, or module with `module`
    arguments: tuple[str, ...]  # of it
    module: bool  # whether `script` is a module's name
    rank: int  # rank, world, gpus: place, ranks of all, GPUs of a server
    world: int
    gpus: int
    steps: int  # of the optimizer after which it ends; 0 for never
    device: dict[str, Any]  # name, memory, capability and multiprocessors of a GPU
    folder: str  # for what it leaves: its record, letters, files that the script writes
    cache: str  # folder that keeps the compiled guard

    @classmethod
    def read(cls, path: str) -> Spec:
        """The spec of a file."""
        return cls(**json.loads(Path(path).read_text()))


def torchrun(rank: int, world: int, gpus: int) -> dict[str, str]:
    """Variables that torchrun sets; none where a script runs by itself.

    Parameters
    ----------
    rank, world, gpus : place, ranks of all, GPUs of a server
    """
    if world == 1:
        return {}
    node, place = divmod(rank, gpus)
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(place), "LOCAL_WORLD_SIZE": str(min(gpus, world)),
        "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(-(-world // gpus)), "ROLE_RANK": str(rank), "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class RunningRank:
    """A rank that runs in this process."""

    recorder: Any  # of what it does


@contextlib.contextmanager
def machine(
    rank: int, world: int, gpus: int, steps: int, device: dict[str, Any], cache: Path, letters: Path | None
) -> Iterator[Any]:
    """A rank whose GPU isn't there, in this process; gives its recorder.

    Parameters
    ----------
    rank, world, gpus : place, ranks of all, GPUs of a server
    steps : of the optimizer after which `Finished` is raised; 0 for never
    device : name, memory, capability and multiprocessors of a GPU
    cache : folder that keeps the compiled guard
    letters : folder through which traced ranks write to each other; None where there are none
    """
    from costmodel.traces.fake_machine import preload

    guard = preload.prepared(cache, gpus, rank % gpus)

    from costmodel.traces.builder import RoleBuilder
    from costmodel.traces.fake_machine import fake_cuda, functional, group_making, recurrent, shims, software, special, watching
    from costmodel.traces.fake_machine.mailbox import Mailbox
    from costmodel.traces.fake_machine.recorder import Recorder
    from costmodel.traces.fake_machine.shims import bitsandbytes

    recorder = Recorder(RoleBuilder(rank), guard, steps)
    recorder.special, recorder.collectives = special.HANDLERS | bitsandbytes.HANDLERS, functional.launched
    mailbox = None if letters is None else Mailbox(letters, rank)
    with contextlib.ExitStack() as stack:
        stack.enter_context(fake_cuda.installed(recorder, gpus, device))
        stack.enter_context(group_making.installed(recorder, mailbox, rank, world))
        stack.enter_context(software.installed(recorder))
        stack.enter_context(recurrent.installed())
        stack.enter_context(watching.installed(recorder))
        stack.enter_context(shims.installed(recorder))
        stack.enter_context(recorder)
        yield recorder


def versions() -> dict[str, str]:
    """Software that the program imported, of what belongs to a trace."""
    found = {}
    for name in PACKAGES:
        if name.replace("-", ".").removesuffix(".engine").removesuffix(".kernel").partition(".")[0] not in sys.modules:
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _script(spec: Spec) -> Callable[[], Any]:
    if spec.module:
        sys.argv = [spec.script, *spec.arguments]
        sys.path.insert(0, os.getcwd())
        return lambda: runpy.run_module(spec.script, run_name="__main__", alter_sys=True)
    path = Path(spec.script).resolve()
    sys.argv = [spec.script, *spec.arguments]
    sys.path.insert(0, str(path.parent))
    return lambda: runpy.run_path(str(path), run_name="__main__")


def main(path: str) -> int:
    """Run what a spec says, and leave its record."""
    spec = Spec.read(path)
    folder = Path(spec.folder)
    from costmodel.traces.fake_machine import confinement, management
    from costmodel.traces.fake_machine.sandbox import OFFLINE, Sandbox

    confinement.ends_with_its_parent()
    os.environ.update(OFFLINE)
    os.environ.update(torchrun(spec.rank, spec.world, spec.gpus))
    own = folder / f"rank-{spec.rank}"
    own.mkdir(parents=True, exist_ok=True)
    if "DATA_GYM_CACHE_DIR" not in os.environ:  # tiktoken's cache lies in the folder for temporary files unless told
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", f"{os.environ.get('TMPDIR', '/tmp')}/data-gym-cache")
    os.environ["TMPDIR"] = str(own)
    management.provided(own / "bin", spec.device, spec.gpus)
    os.environ["PATH"] = f"{own / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    sys.dont_write_bytecode = True
    run = _script(spec)
    sandbox = Sandbox(own / "files", (folder, Path(spec.cache)))
    error = ""
    from costmodel.traces.fake_machine import preload

    preload.prepared(Path(spec.cache), spec.gpus, spec.rank % spec.gpus)
    import torch

    del torch
    from costmodel.traces.fake_machine.recorder import Finished

    with machine(
        spec.rank, spec.world, spec.gpus, spec.steps, spec.device, Path(spec.cache), folder if spec.world > 1 else None
    ) as recorder:
        sandbox.install()
        recorder.found, recorder.ready = sandbox.found, sandbox.ready
        try:
            run()
        except Finished:
            pass
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                error = f"{Path(spec.script).name} left with code {leaving.code}"
        except BaseException as failure:
            traceback.print_exc()
            error = told(failure, recorder)
        recorder.enabled = False
        sandbox.closed = True
        found = {"error": error, "steps": recorder.done_steps, "left": " left with code " in error}
        trace = finished(recorder, spec.world)
        if not error and not recorder.done_steps:
            found["error"] = f"{Path(spec.script).name} ended without a step of an optimizer"
        elif not error and not len(trace.roles[0].kernels):
            found["error"] = f"{Path(spec.script).name} ran nothing on a GPU: its model and its batches stay on the CPU"
        trace.save(own / "role.npz")
    (own / "told.json").write_text(json.dumps(found))
    (folder / f"done-{spec.rank}").touch()
    return 1 if error else 0


def told(failure: BaseException, recorder: Any) -> str:
    """A failure of the user's code in a line: the line of its code that is nearest to it."""
    place, step = "", failure.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if recorder.where.whose(name) == 0:
            place = f"{Path(name).name}:{step.tb_lineno}"
        step = step.tb_next
    cause: BaseException | None = failure
    fetched = False
    while cause is not None:
        if isinstance(cause, Unreached) and place:
            return f"{place}: {cause}"
        if isinstance(cause, NotModelled):
            return str(cause)
        fetched |= type(cause).__name__ in OF_THE_HUB
        cause = cause.__cause__ or cause.__context__
    message = " ".join(str(failure).split())
    if fetched or "huggingface.co" in message or "on the Hub" in message:
        return (
            f"{place + ': ' if place else ''}a file of the Hugging Face Hub isn't in this machine's cache, and traced code "
            f"has no network: fetch it before, or name a folder ({type(failure).__name__}: {message.split('. ')[0][:200]})"
        )
    if isinstance(failure, (PermissionError, subprocess.CalledProcessError)):
        message += " (traced code, and every program that it starts, writes in a folder of the trace's own alone)"
    if any(word in message for word in OF_THE_BUILD):
        return f"{place + ': ' if place else ''}a kernel of PyTorch's builds with CUDA that has no stand-in here: {message[:300]}"
    return f"{place + ': ' if place else ''}{type(failure).__name__}: {message[:600]}"


def finished(recorder: Any, world: int) -> Any:
    """The trace of what a recorder saw.

    Parameters
    ----------
    recorder : of one rank
    world : ranks of all
    """
    import torch

    from costmodel.traces.record import Trace

    names = recorder.named_parameters
    trained = {names[parameter] for parameter in recorder.trained if parameter in names}
    if trained:  # optimizers of flat buffers, as DeepSpeed's, know no names
        recorder.builder.left_out(name for name in names.values() if name not in trained)
    role = recorder.builder.role()
    software = versions()
    if recorder.facts.get("framework") != "deepspeed":
        software.pop("deepspeed", None)  # others import it without using it
    cudnn = torch.backends.cudnn
    kinds = {"products": torch.backends.cuda.matmul, "convolutions": cudnn.conv, "recurrences": cudnn.rnn}
    tensor_float = " ".join(kind for kind, backend in kinds.items() if backend.fp32_precision == "tf32")
    facts = {**recorder.facts, "tensor_float": tensor_float}
    if recorder.where.graphed:
        facts["graphed_parts"] = " ".join(map(str, sorted(recorder.where.graphed)))
    return Trace(roles=(role,), world_size=world, versions=software, facts=facts, values_assumed=role.values_assumed)


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
