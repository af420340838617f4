"""What was predicted beside what is measured, while a run trains: in W&B, TensorBoard or a CSV file; and read back as records.

A loop of one's own:

>>> import costmodel, pathlib, tempfile
>>> from costmodel.callbacks import CsvLog, Monitor, load_runs
>>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
>>> answer = costmodel.estimate(model, cluster, costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=8), "fsdp2")
>>> path = pathlib.Path(tempfile.mkdtemp(), "steps.csv")
>>> with Monitor(answer, CsvLog(path)) as monitor:
...     for batch in range(3):
...         with monitor.step():
...             pass  # the work of a step
>>> run, = load_runs(path)
>>> run.framework.name, run.cluster.gpus
('fsdp2', 8)

`trainer_callback` makes it a callback of Hugging Face's Trainer, `lightning_callback` one of Lightning. A loop with a place for
further metrics, such as torchtitan's, calls `Monitor.mark` at the end of every step and logs what it gives.
"""

from costmodel.callbacks.exports import load_runs
from costmodel.callbacks.hooks import lightning_callback, trainer_callback
from costmodel.callbacks.logs import CsvLog, Log, TensorBoardLog, WandbLog
from costmodel.callbacks.monitor import Monitor

__all__ = ["CsvLog", "Log", "Monitor", "TensorBoardLog", "WandbLog", "lightning_callback", "load_runs", "trainer_callback"]
