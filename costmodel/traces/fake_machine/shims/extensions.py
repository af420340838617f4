"""Extensions that a program compiles as it runs: nobody sees what they launch. Tried on PyTorch 2.13."""

from __future__ import annotations

from typing import Any, NoReturn

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """What `load` and `load_inline` end in."""

    def compiled(name: str, *_: Any, **__: Any) -> NoReturn:
        raise NotModelled(
            f"{recorder.where.line()}: the extension {name} is compiled from C++ or CUDA as the program runs: what it launches "
            f"can't be seen; leave it out of what is traced, or give its operators to torch.library with register_fake"
        )

    module._jit_compile = compiled
