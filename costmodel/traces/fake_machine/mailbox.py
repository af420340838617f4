"""What traced ranks say to each other: whole numbers and pickled objects, through files of a folder."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import torch
from torch import Tensor

from costmodel.text.errors import NotModelled


class Mailbox:
    """Letters between ranks that run at once.

    Parameters
    ----------
    folder : that all of them see
    rank : its owner
    patience : how long a letter is waited for [s]
    """

    def __init__(self, folder: Path, rank: int, patience: float = 120.0):
        self.folder, self.rank, self.patience = folder, rank, patience
        self._wanted: set[int] = set()

    def want(self, rank: int) -> None:
        """Ask for a rank to be run, too."""
        if rank != self.rank and rank not in self._wanted:
            self._wanted.add(rank)
            (self.folder / f"want-{rank}").touch()

    def post(self, key: str, value: Tensor | None) -> None:
        """Leave a letter for all who know its key."""
        path = self._path(key)
        part = path.with_suffix(f".part{self.rank}")
        torch.save(value, part)
        os.replace(part, path)

    def take(self, key: str, sender: int, line: str) -> Tensor | None:
        """Read a letter, waiting for it.

        Parameters
        ----------
        key : of the letter
        sender : rank that leaves it
        line : of the code that waits

        Raises
        ------
        NotModelled
            where it doesn't come
        """
        self.want(sender)
        path, until = self._path(key), time.monotonic() + self.patience
        while not path.exists():
            if (self.folder / f"done-{sender}").exists() and not path.exists():
                raise NotModelled(
                    f"{line}: rank {self.rank} waits for what rank {sender} never sent: a hang on a real cluster"
                )
            if time.monotonic() > until:
                raise NotModelled(
                    f"{line}: rank {self.rank} waited {self.patience:.0f} s for what rank {sender} hasn't sent: a hang on a "
                    f"real cluster, unless that rank is slow to trace"
                )
            time.sleep(0.004)
        value: Tensor | None = torch.load(path, weights_only=True)
        return value

    def _path(self, key: str) -> Path:
        return self.folder / (hashlib.sha256(key.encode()).hexdigest()[:24] + ".letter")
