"""The front door: every public name is there, and no module of a verb's name takes its place."""

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import costmodel

ROOT = Path(__file__).parents[1]
MODULES = [info.name for info in pkgutil.walk_packages(costmodel.__path__, "costmodel.")]


def test_a_public_name_is_what_its_home_calls_so():
    for name in costmodel.__all__:
        value = getattr(costmodel, name)
        assert value is getattr(import_module(f"costmodel.{costmodel._HOME[name]}"), name), name
        assert callable(value) and inspect.getdoc(value), name


def test_no_room_shares_its_name_with_a_public_function_which_it_would_hide():
    rooms = {name.split(".")[1] for name in MODULES if "." in name}
    assert {"evaluation", "page"} <= rooms and not rooms & set(costmodel.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "costmodel" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [one for one in tree.body if isinstance(one, ast.ImportFrom) and not one.level]
    seen = {(one.module, alias.asname) for one in imports for alias in one.names}
    assert seen == {(f"costmodel.{home}", name) for name, home in costmodel._HOME.items()}
