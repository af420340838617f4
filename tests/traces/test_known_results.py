"""What operators gave the last time is given again: it looks, and shares memory, as what PyTorch makes of real tensors."""

import importlib.util
from pathlib import Path

import pytest

from costmodel.traces.running import trace_script

if importlib.util.find_spec("torch") is None:  # it is imported in the traced process alone
    pytest.skip("the fake machine needs PyTorch: pip install 'costmodel[trace]'", allow_module_level=True)
pytestmark = pytest.mark.slow

SCRIPT = '''
import torch
from torch.nn import functional as F

OPERATORS = {
    "view": lambda a, b: a.view(2, 2, 6),
    "transposed": lambda a, b: a.t(),
    "rows": lambda a, b: a[1:3],
    "the same rows of a part": lambda a, b: a[1:][1:],
    "expanded": lambda a, b: a[:1].expand(4, 6),
    "split": lambda a, b: a.split([2, 4], dim=1),
    "unbound": lambda a, b: a.unbind(0),
    "a product of a transposed": lambda a, b: a.t() @ b,
    "in place": lambda a, b: a.add_(b),
    "in place of a part": lambda a, b: a[:, :3].mul_(2),
    "with a number": lambda a, b: a * 2,
    "with another number": lambda a, b: a * True,
    "compared": lambda a, b: a > b,
    "as 16 bit": lambda a, b: a.to(torch.bfloat16),
    "sorted": lambda a, b: a.sort(dim=1),
    "largest": lambda a, b: a.topk(2, dim=1),
    "summed": lambda a, b: a.sum(0),
    "summed to one": lambda a, b: a.sum(),
    "summed as 64 bit": lambda a, b: a.sum(dtype=torch.float64),
    "put together": lambda a, b: torch.cat([a, b], 1),
    "of no rows": lambda a, b: torch.cat([a[:0], b]),
    "softmax": lambda a, b: F.softmax(a, -1),
    "normed": lambda a, b: F.layer_norm(a, (6,)),
    "looked up": lambda a, b: F.embedding(torch.tensor([[0, 3]], device=a.device), a),
    "picked": lambda a, b: a[torch.tensor([0, 3, 3], device=a.device)],
    "a copy": lambda a, b: a.t().clone(),
    "a copy in order": lambda a, b: a.t().contiguous(),
    "like it": lambda a, b: torch.zeros_like(a.t()),
    "convolved": lambda a, b: F.conv2d(a.view(1, 1, 4, 6), b.view(1, 1, 4, 6)[..., :2, :2]),
    "several at once": lambda a, b: torch._foreach_add([a, b], 1.0),
    "several in place": lambda a, b: torch._foreach_mul_([a, b], 2.0),
    "picked by truth": lambda a, b: a[(b == b) & (torch.arange(4, device=a.device) > 1)[:, None]],
}


def looks(device, do):
    """Shape, strides, type and place in memory of what an operator makes, and which of its operands' memory it lies in."""
    a, b = torch.ones(4, 6, device=device), torch.ones(4, 6, device=device)
    made = do(a, b)
    made = [made] if isinstance(made, torch.Tensor) else made or []
    owner = {a.untyped_storage()._cdata: "a", b.untyped_storage()._cdata: "b"}
    return [
        (tuple(one.shape), one.stride(), one.dtype, one.storage_offset(), owner.get(one.untyped_storage()._cdata, ""), one is a)
        for one in made
    ]


for name, do in OPERATORS.items():
    for time in range(3):
        assert looks("cuda", do) == looks("cpu", do), (name, time, looks("cuda", do), looks("cpu", do))
weight = torch.nn.Parameter(torch.ones(6, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    left = weight.grad
    (weight * 2).sum().backward()
    assert left is None and weight.grad.shape == weight.shape
    optimizer.step()
    optimizer.zero_grad()
'''


def test_results_look_and_share_memory_the_second_time_as_those_of_real_tensors(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert trace_script(str(script), gpus=1, steps=3).roles
