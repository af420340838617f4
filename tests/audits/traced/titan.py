"""torchtitan's own trainer on a model of few layers: `titan.py MODEL FLAVOR LAYERS [torchtitan's arguments]`.

Tokens are drawn, and none are decoded: what is trained, and how, is torchtitan's. Tried on torchtitan 0.2.2.
"""

import dataclasses
import sys

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.config import ConfigManager
from torchtitan.protocols.train_spec import get_train_spec, register_train_spec
from torchtitan.train import Trainer, main


class Drawn(BaseDataLoader):
    """Batches of drawn tokens."""

    def __init__(self, job_config, **others):
        self.shape = job_config.training.local_batch_size, job_config.training.seq_len

    def __iter__(self):
        while True:
            yield {"input": torch.randint(0, 1000, self.shape)}, torch.randint(0, 1000, self.shape)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


name, flavor, layers, *words = sys.argv[1:]
spec = get_train_spec(name)
sizes = {flavor: dataclasses.replace(spec.model_args[flavor], n_layers=int(layers))}
known = {"model_args": sizes, "build_dataloader_fn": Drawn, "build_tokenizer_fn": None, "build_validator_fn": None}
register_train_spec(name, dataclasses.replace(spec, **known))
asked = ["--model.name", name, "--model.flavor", flavor, "--training.steps", "10", *words]
parse = ConfigManager.parse_args
ConfigManager.parse_args = lambda manager: parse(manager, asked)
main(Trainer)
