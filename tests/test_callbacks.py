"""Training loops log what was predicted beside what they measure, and the logs are read back as runs."""

from __future__ import annotations

import csv
import itertools
import json
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest

import costmodel
from costmodel.callbacks import (
    CsvLog,
    Monitor,
    TensorBoardLog,
    WandbLog,
    lightning_callback,
    load_runs,
    trainer_callback,
)
from costmodel.text.errors import UnreadableFile

MODEL = costmodel.load_model("llama3-8b")
CLUSTER = costmodel.load_cluster("dgx-h100", gpus=8)
PLAN = costmodel.Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4, recompute="full")


@pytest.fixture(scope="module")
def answer():
    return costmodel.estimate(MODEL, CLUSTER, PLAN, "fsdp2")


class Clock:
    """Steps of known length."""

    def __init__(self, *seconds: float) -> None:
        self._times = iter(itertools.accumulate(seconds, initial=0.0))

    def __call__(self) -> float:
        return next(self._times)


class Kept:
    """A log that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        self.record, self.closed = None, False

    def open(self, record) -> None:
        self.record = record

    def log(self, step, figures) -> None:
        self.steps[step] = figures

    def close(self) -> None:
        self.closed = True


class Writer(Kept):
    """What a ``SummaryWriter`` is asked."""

    def add_text(self, tag, text) -> None:
        self.record = {tag: text}

    def add_scalar(self, tag, value, step) -> None:
        self.steps.setdefault(step, {})[tag] = value

    def flush(self) -> None:
        self.closed = True


class WandbRun:
    """What a run of W&B is asked."""

    def __init__(self) -> None:
        self.config, self.history, self.metrics = Config(), [], {}

    def define_metric(self, name, step_metric=None) -> None:
        self.metrics[name] = step_metric

    def log(self, figures, commit) -> None:
        self.history.append((figures, commit))


class Config(dict):
    def update(self, values, allow_val_change) -> None:
        super().update(values)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_loop_without_pytorch_logs_the_prediction_with_its_interval_beside_what_it_measures(answer, tmp_path):
    """A network of NumPy learns a line; nothing of PyTorch is needed or loaded by what logs it."""
    chance = np.random.default_rng(0)
    inputs = chance.standard_normal((256, 4))
    wanted, weights = inputs @ [1.0, -2.0, 3.0, 0.5], np.zeros(4)
    path = tmp_path / "steps.csv"
    with Monitor(answer, CsvLog(path), memory=lambda: 5e9) as monitor:
        for _ in range(20):
            with monitor.step():
                weights -= 0.1 * inputs.T @ (inputs @ weights - wanted) / len(inputs) * 2
    assert np.allclose(weights, [1.0, -2.0, 3.0, 0.5], atol=0.1)
    rows = table(path)
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    for row in rows:
        assert 0.0 < float(row["step_time_s"]) < 60.0
        assert float(row["predicted_step_time_s"]) == answer.step_time
        assert (float(row["low_step_time_s"]), float(row["high_step_time_s"])) == answer.time_interval
        assert float(row["low_peak_reserved_bytes"]) < float(row["predicted_peak_reserved_bytes"])
        assert float(row["peak_reserved_bytes"]) == 5e9
        assert float(row["measured_over_predicted"]) == pytest.approx(float(row["step_time_s"]) / answer.step_time)
    (run,) = load_runs(path)
    assert run.step_time == statistics.median([float(row["step_time_s"]) for row in rows[2:]])
    assert (run.peak_memory, run.memory_kind) == (5e9, "reserved")


def test_what_was_logged_is_read_back_as_the_run_that_was_asked_about(answer, tmp_path):
    path = tmp_path / "steps.csv"
    with Monitor(answer, CsvLog(path), clock=Clock(9.0, 8.0, 7.5, 7.6, 7.7)) as monitor:
        assert monitor.mark() == {}
        for _ in range(5):
            monitor.mark()
    (run,) = load_runs(path)
    assert (run.model, run.cluster, run.framework.name) == (MODEL, CLUSTER, "fsdp2")
    assert run.plan.on(run.cluster) == answer.plan
    assert run.step_time == pytest.approx(7.6)  # the first two are left out, as of any log
    mine = costmodel.calibrate(CLUSTER, [run], "fsdp2")
    before, after = answer, costmodel.estimate(MODEL, mine, PLAN, next(iter(mine.frameworks)))
    assert abs(np.log(after.step_time / 7.6)) < abs(np.log(before.step_time / 7.6))
    assert after.time_interval[1] / after.time_interval[0] < before.time_interval[1] / before.time_interval[0]


def test_a_model_of_ones_own_is_read_back_by_its_shape(tmp_path):
    own = costmodel.Transformer(name="ours", layers=4, hidden=256, heads=4, vocabulary=1000, feed_forward=1024)
    path = tmp_path / "steps.csv"
    with Monitor(costmodel.estimate(own, CLUSTER, PLAN), CsvLog(path), clock=Clock(0.1)) as monitor, monitor.step():
        pass
    assert load_runs(path)[0].model == own


def test_an_evaluation_between_steps_is_no_step(answer):
    kept = Kept()
    monitor = Monitor(answer, kept, clock=Clock(2.0, 2.0, 2.0))
    monitor.mark()
    monitor.mark()
    monitor.pause()
    assert monitor.mark() == {}
    assert monitor.mark()["step_time_s"] == 2.0
    assert sorted(kept.steps) == [2, 4]


def test_tensorboard_gets_a_scalar_a_figure_and_the_record_as_a_text(answer):
    writer = Writer()
    with Monitor(answer, TensorBoardLog(writer), clock=Clock(7.0)) as monitor, monitor.step():
        pass
    assert writer.steps[1]["costmodel/step_time_s"] == 7.0
    assert writer.steps[1]["costmodel/high_step_time_s"] == answer.time_interval[1]
    assert json.loads(writer.record["costmodel/record"])["model"] == "llama3-8b" and writer.closed


@pytest.mark.parametrize("form", ["history.csv", "list.json", "lines.jsonl", "frame.json", "table.csv"])
def test_exports_of_wandb_are_read_as_the_run_that_it_logged(answer, tmp_path, form):
    wandb = WandbRun()
    with Monitor(answer, WandbLog(wandb), clock=Clock(9.0, 7.5, 7.4, 7.6, 7.5)) as monitor:
        for _ in range(3):
            with monitor.step():
                pass
            monitor.pause()
    assert wandb.metrics["costmodel/*"] == "costmodel/step"
    assert not any(commit for _, commit in wandb.history)  # what the loop logs next takes them along
    rows = [{"_step": 10 * place, "loss": 2.5, **figures} for place, (figures, _) in enumerate(wandb.history)]
    rows.insert(1, {"_step": 5, "loss": 2.6})  # a row of the loop's own
    path, config = tmp_path / form, json.loads(json.dumps(wandb.config))
    columns = list(dict.fromkeys(itertools.chain(*rows)))
    if form == "table.csv":
        from costmodel.catalogue.records.reading import dotted

        rows, config = [{"Name": "brisk-sun-7", **dotted(wandb.config), "costmodel/step_time_s": 7.4}], None
        columns = list(rows[0])
    if form.endswith(".csv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            written = csv.DictWriter(file, columns)
            written.writeheader()
            written.writerows(rows)
    elif form == "list.json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif form == "frame.json":
        frame = {column: {str(place): row.get(column) for place, row in enumerate(rows)} for column in columns}
        path.write_text(json.dumps(frame), encoding="utf-8")
    else:
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (run,) = load_runs(path, config)
    assert run.step_time == pytest.approx({"table.csv": 7.4}.get(form, statistics.median([9.0, 7.4, 7.5])))
    assert (run.model, run.cluster, run.plan.on(run.cluster)) == (MODEL, CLUSTER, answer.plan)
    assert run.id == ("brisk-sun-7" if form == "table.csv" else path.stem)


def test_a_config_as_wandb_keeps_it_says_what_ran(answer, tmp_path):
    path, config = tmp_path / "history.csv", tmp_path / "config.yaml"
    path.write_text("_step,costmodel/step_time_s\n1,7.5\n2,7.4\n", encoding="utf-8")
    with pytest.raises(UnreadableFile, match="give the run's config"):
        load_runs(path)
    record = json.dumps(Monitor(answer).record)
    config.write_text(f'wandb_version: 1\ncostmodel:\n  desc: null\n  value: {record}\n', encoding="utf-8")
    assert load_runs(path, config)[0].step_time == pytest.approx(7.45)
    with pytest.raises(UnreadableFile, match="no key 'costmodel'"):
        load_runs(path, {"lr": 0.1})
    path.write_text("_step,loss\n1,7.5\n", encoding="utf-8")
    with pytest.raises(UnreadableFile, match="no row has costmodel/step_time_s"):
        load_runs(path, config)


def test_a_loop_of_pytorch_on_a_cpu_logs_every_step(answer, tmp_path):
    torch = pytest.importorskip("torch", reason="trains a toy model: pip install torch")
    layer = torch.nn.Linear(8, 1)
    adam = torch.optim.Adam(layer.parameters(), lr=0.1)
    inputs = torch.randn(64, 8)
    path, losses = tmp_path / "steps.csv", []
    with Monitor(answer, CsvLog(path)) as monitor:
        for _ in range(10):
            with monitor.step():
                adam.zero_grad()
                loss = (layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                loss.backward()
                adam.step()
                losses.append(loss.item())
    assert losses[-1] < losses[0]
    rows = table(path)
    assert len(rows) == 10 and all(float(row["step_time_s"]) > 0.0 for row in rows)
    assert {row["peak_reserved_bytes"] for row in rows} == {""}  # a CPU has no allocator of a GPU


def test_hugging_faces_trainer_logs_its_optimizer_steps(answer, tmp_path):
    torch = pytest.importorskip("torch", reason="trains a toy model: pip install torch")
    transformers = pytest.importorskip("transformers", reason="its Trainer: pip install transformers")

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, inputs, labels):
            found = self.layer(inputs)
            return {"loss": (found[:, 0] - labels).square().mean(), "logits": found}

    data = [{"inputs": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(24)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    path = tmp_path / "steps.csv"
    monitor = Monitor(answer, CsvLog(path))
    transformers.Trainer(Toy(), arguments, train_dataset=data, callbacks=[trainer_callback(monitor)]).train()
    assert [int(row["step"]) for row in table(path)] == [2, 3, 4, 5, 6]  # the first begins before anything is known


def test_lightning_logs_its_optimizer_steps(answer, monkeypatch):
    """Held against the hooks that Lightning calls, where it is not installed too."""
    from types import ModuleType, SimpleNamespace

    package, module = ModuleType("lightning"), ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    kept = Kept()
    callback = lightning_callback(Monitor(answer, kept, clock=Clock(1.0, 1.0, 1.0, 1.0)))
    for batch in range(6):  # two micro-batches a step
        trainer = SimpleNamespace(is_global_zero=True, global_step=(batch + 1) // 2)
        callback.on_train_batch_end(trainer, None, None, None, batch)
    callback.on_train_end(None, None)
    assert sorted(kept.steps) == [2, 3] and kept.closed


def test_nothing_of_training_libraries_is_loaded_with_the_callbacks():
    import subprocess

    said = "import sys, costmodel.callbacks; print([name for name in ('torch', 'transformers', 'wandb') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout == "[]\n"
