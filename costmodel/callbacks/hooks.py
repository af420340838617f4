"""Callbacks of training libraries, made of a `Monitor` when their library is there."""

from __future__ import annotations

from typing import Any

from costmodel.callbacks.monitor import Monitor


def trainer_callback(monitor: Monitor) -> Any:
    """A callback of Hugging Face's Trainer, and of what is built on it (TRL, Axolotl, LLaMA-Factory).

    Parameters
    ----------
    monitor : of the plan that runs

    Returns
    -------
    transformers.TrainerCallback
        for ``Trainer(callbacks=[...])``; the main process logs

    Raises
    ------
    ImportError
        where ``transformers`` is not installed
    """
    from transformers import TrainerCallback

    class TrainerMarks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                monitor.mark(state.global_step)

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            monitor.pause()

        on_save = on_evaluate

        def on_train_end(self, *_: Any, **__: Any) -> None:
            monitor.close()

    return TrainerMarks()


def lightning_callback(monitor: Monitor) -> Any:
    """A callback of Lightning.

    Parameters
    ----------
    monitor : of the plan that runs

    Returns
    -------
    lightning.pytorch.Callback
        for ``Trainer(callbacks=[...])``; the process of global rank 0 logs, once for each optimizer step

    Raises
    ------
    ImportError
        where ``lightning`` is not installed
    """
    from lightning.pytorch import Callback as Base

    class LightningMarks(Base):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.is_global_zero and trainer.global_step != self._seen:
                self._seen = trainer.global_step
                monitor.mark(trainer.global_step)

        _seen = 0

        def on_validation_start(self, *_: Any, **__: Any) -> None:
            monitor.pause()

        on_validation_end = on_save_checkpoint = on_validation_start

        def on_train_end(self, *_: Any, **__: Any) -> None:
            monitor.close()

    return LightningMarks()
