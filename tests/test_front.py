"""The front door: every public name is there, and no module of a verb's name takes its place."""

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import costmodel

ROOT = Path(__file__).parents[1]
SHARED = sorted(name for name, home in costmodel._HOME.items() if name == home)


@pytest.mark.parametrize("name", costmodel.__all__)
def test_a_public_name_is_what_its_home_calls_so(name):
    value = getattr(costmodel, name)
    assert value is getattr(import_module(f"costmodel.{costmodel._HOME[name]}"), name)
    assert callable(value) and inspect.getdoc(value)


def test_verbs_stay_functions_whatever_modules_are_imported():
    assert {"estimate", "search", "calibrate", "ledger", "timeline", "checkpoint", "byteps", "parameter_server"} <= {*SHARED}
    program = "\n".join([
        "import costmodel, types",
        *(f"import costmodel.{name}" for name in SHARED),
        *(f"assert isinstance(costmodel.{name}, types.FunctionType), {name!r}" for name in SHARED),
        *(f"from costmodel.{name} import {name}; assert costmodel.{name} is {name}" for name in SHARED),
    ])  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "costmodel" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(one.module, alias.asname) for one in block.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assert seen == {(f"costmodel.{home}", name) for name, home in costmodel._HOME.items()}
