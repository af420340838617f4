"""What traced ranks say to each other: whole numbers and pickled objects, through files of a folder."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import torch
from torch import Tensor

from costmodel.text.errors import NotModelled

BEAT = 2.0
"""Between two notes of a rank on how long it has computed [s]."""
WORKING = 0.05
"""Share of a processor from which on a rank does more than wait."""


class Mailbox:
    """Letters between ranks that run at once.

    Parameters
    ----------
    folder : that all of them see
    rank : its owner
    patience : how long a letter is waited for while no other rank computes anything [s]
    """

    def __init__(self, folder: Path, rank: int, patience: float = 120.0):
        self.folder, self.rank, self.patience = folder, rank, patience
        self._wanted: set[int] = set()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Tell the others now and then how long this process has computed."""
        path, part = self.folder / f"computed-{self.rank}", self.folder / f"computed-{self.rank}.part"
        while self.folder.exists():
            try:
                part.write_text(f"{time.process_time():.3f}")
                os.replace(part, path)
            except FileNotFoundError:  # the folder is gone, as tracing has ended
                return
            time.sleep(BEAT)

    def _computed(self) -> dict[str, float]:
        """How long each other rank has computed [s]: the sender may itself wait for one that is slow."""
        own = f"computed-{self.rank}"
        return {
            path.name: float(path.read_text()) for path in self.folder.glob("computed-*") if not path.suffix and path.name != own
        }

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
        path, since = self._path(key), time.monotonic()
        before = {} if path.exists() else self._computed()
        while not path.exists():
            if (self.folder / f"done-{sender}").exists() and not path.exists():
                raise NotModelled(f"{line}: rank {self.rank} waits for what rank {sender} never sent: a hang on a real cluster")
            waited = time.monotonic() - since
            if waited > self.patience:
                since, before, was = since + waited, self._computed(), before
                if not any(now - was.get(rank, 0.0) >= WORKING * waited for rank, now in before.items()):
                    raise NotModelled(
                        f"{line}: rank {self.rank} waited {waited:.0f} s for what rank {sender} hasn't sent, while no other rank "
                        f"computed anything: a hang on a real cluster"
                    )
            time.sleep(0.004)
        value: Tensor | None = torch.load(path, weights_only=True)
        return value

    def _path(self, key: str) -> Path:
        return self.folder / (hashlib.sha256(key.encode()).hexdigest()[:24] + ".letter")
