"""Megatron-LM's own pretrain_gpt.py, without Transformer Engine: `megatron_lm.py ARGUMENTS`, as it takes them.

Its repository is in the folder that MEGATRON_LM names. Of Apex, which it asks for beside sequence parallelism, a norm is there:
PyTorch's own.
"""

import os
import runpy
import sys
import types
import typing
from pathlib import Path

from torch.nn.functional import layer_norm


class FusedLayerNormAffineFunction:
    """Apex's norm, by PyTorch's kernel."""

    @staticmethod
    def forward(ctx, entered, weight, bias, normalized_shape, eps, memory_efficient=False):
        raise NotImplementedError

    @staticmethod
    def apply(entered, weight, bias, normalized_shape, eps, memory_efficient=False):
        return layer_norm(entered, tuple(normalized_shape), weight, bias, eps)


def stood_in(name: str, **content: object) -> None:
    """A module that isn't installed."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(content)


stood_in("apex")
stood_in("apex.normalization")
stood_in("apex.normalization.fused_layer_norm", FusedLayerNormAffineFunction=FusedLayerNormAffineFunction)
if not hasattr(typing, "override"):  # before Python 3.12
    typing.override = lambda made: made
given = [
    "--mock-data", "--tokenizer-type", "NullTokenizer", "--lr", "1e-4", "--train-iters", "10", "--bf16", "--eval-iters", "0",
    "--eval-interval", "1000", "--transformer-impl", "local", "--no-persist-layer-norm", "--no-gradient-accumulation-fusion",
    "--no-masked-softmax-fusion", "--hidden-dropout", "0", "--attention-dropout", "0",
]  # fmt: skip
folder = Path(os.environ["MEGATRON_LM"])
sys.path.insert(0, str(folder))
script = str(folder / "pretrain_gpt.py")
sys.argv = [script, *given, *sys.argv[1:]]
runpy.run_path(script, run_name="__main__")
