"""Jobs of Kubernetes: the command line of their containers, and on how many GPUs it starts.

References
----------
kubernetes/api core/v1/types.go ``Container``: ``command`` and ``args`` make the line, ``$(NAME)`` in it is a variable of ``env``,
and ``resources.limits`` has the devices; kubeflow/training-operator@2f18ab7 pkg/apis/kubeflow.org/v1/pytorch_types.go
``PyTorchJobSpec``: ``nprocPerNode``, which torchrun is told, and ``pytorchReplicaSpecs`` with ``replicas``
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

COPIES = ("replicas", "parallelism")
"""Keys of how often what lies below them is started."""


class Job(NamedTuple):
    """What a manifest starts."""

    line: str  # a command line, or the text of a script
    script: bool  # whether a shell reads it
    variables: dict[str, str]  # of its environment
    sizes: dict[str, int]  # flags of torchrun that say on how many GPUs, as far as the manifest does


def job_of(tree: dict[str, Any]) -> Job | None:
    """The job that a manifest describes; None where a tree is no manifest, or starts nothing.

    Parameters
    ----------
    tree : of a file

    Examples
    --------
    >>> container = {"image": "x", "command": ["torchrun", "sft.py", "--bf16"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    >>> workers = {"replicas": 4, "template": {"spec": {"containers": [container]}}}
    >>> job_of({"apiVersion": "v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": workers}}}).sizes
    {'nnodes': 4, 'nproc_per_node': 8}
    """
    found = [*_containers(tree, 1)] if {"apiVersion", "kind"} <= tree.keys() else []
    first = max((one for one in found if one.words), key=lambda one: one.gpus, default=None)
    if first is None:
        return None
    words = first.words
    script = words[0].rpartition("/")[2] in ("sh", "bash") and len(words) > 2
    line = re.sub(r"\s*(&&|;)\s", "\n", words[2]) if script else shlex.join(words)
    per_node = _whole(_at(tree, "spec", "nprocPerNode")) or max(one.gpus for one in found)
    sizes = {"nnodes": sum(one.copies for one in found if one.gpus), "nproc_per_node": per_node}
    sizes = {name: size for name, size in sizes.items() if size}
    return Job(re.sub(r"\$\((\w+)\)", r"${\1}", line), script, first.variables, sizes)


class _Container(NamedTuple):
    words: list[str]
    gpus: int
    variables: dict[str, str]
    copies: int


def _containers(tree: object, copies: int) -> Iterator[_Container]:
    """Containers, which have images, each with how often it is started."""
    if isinstance(tree, list):
        for one in tree:
            yield from _containers(one, copies)
    elif isinstance(tree, dict) and "image" in tree:
        gpus = [_whole(_at(tree, "resources", "limits", f"{maker}.com/gpu")) for maker in ("nvidia", "amd")]
        command, more, listed = (held if isinstance(held := tree.get(key), list) else [] for key in ("command", "args", "env"))
        variables = {str(_at(one, "name")): str(_at(one, "value")) for one in listed}
        yield _Container([*map(str, (*command, *more))], max(gpus), variables, copies)
    elif isinstance(tree, dict):
        for key in COPIES:
            copies *= _whole(tree.get(key)) or 1
        for below in tree.values():
            yield from _containers(below, copies)


def _at(tree: object, *keys: str) -> object:
    """What a tree has at the end of a path; None where it has none."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _whole(value: object) -> int:
    """A whole number, or such a text; 0 of anything else."""
    return int(str(value)) if re.fullmatch("[0-9]{1,6}", str(value)) else 0
