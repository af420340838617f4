"""A plan as formulas take it: its choices, what they rule out, and the strides of its groups."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from costmodel import IllegalPlan, InvalidValue, Plan, load_framework
from costmodel.description.fields import table
from costmodel.description.plan import RESOLVED, restrictions
from costmodel.formulas.settings import DefaultChoices, PlanChoices

MEGATRON = load_framework("megatron-core")


def test_every_field_of_a_plan_is_a_choice_that_formulas_take():
    assert set(PlanChoices._fields) == set(table(Plan)) == {one.name for one in dataclasses.fields(Plan)}


def test_a_framework_has_a_field_for_every_choice_that_it_decides():
    decided = {
        name for name, row in table(Plan).items()
        if row.software and not row.unit and row.default is None and name in table(type(MEGATRON))
    }  # fmt: skip
    assert decided == {*DefaultChoices._fields, "optimizer_kernel"}  # which stays open: other optimizers than Adam have none


@pytest.mark.parametrize("name", [name for name, row in table(Plan).items() if type(row.kind).__name__ in ("OneOf", "Flag")])
def test_a_code_is_read_back_as_the_choice_that_it_stands_for(name):
    kind = table(Plan)[name].kind
    for value in (None, *kind.choices):
        assert kind.value(kind.code(value)) == value


def test_nothing_that_a_framework_decides_is_left_open():
    plan = Plan(global_batch=8, seq_len=128).resolve(MEGATRON)
    assert all(getattr(plan, name) is not None for name in RESOLVED)


@pytest.mark.parametrize("order", list(itertools.permutations(("tensor", "context", "data", "pipeline"))))
def test_neighbours_along_a_degree_are_as_many_ranks_apart_as_there_are_inside(order):
    """Counted out: rank numbers are places in a table whose axes are the degrees, the innermost last."""
    degrees = {"tensor": 2, "context": 3, "data": 5, "pipeline": 7}
    plan = Plan(
        global_batch=40, seq_len=4096, tensor_parallel=2, context_parallel=3, data_parallel=5, pipeline_parallel=7,
        rank_order=order,
    )  # fmt: skip
    found = plan.numbers(MEGATRON, 32)
    ranks = list(itertools.product(*(range(degrees[name]) for name in reversed(order))))
    for name in ("tensor", "context", "pipeline"):
        step = tuple(int(other == name) for other in reversed(order))
        assert getattr(found, f"{name}_stride") == ranks.index(step)


@pytest.mark.parametrize("one", restrictions(), ids=lambda one: f"{one.field} beside {one.beside}")
def test_a_restriction_says_the_field_and_what_it_stands_beside(one):
    beside = None if one.above is None else one.above + 1
    broken = {one.field: one.allowed[0], one.beside: one.values[-1] if one.values else beside}
    assert not one.broken(broken)
    broken[one.field] = object()
    assert one.broken(broken)
    assert one.words({**broken, one.field: 1}).startswith(f"{one.field}=1: expected ")


@pytest.mark.parametrize(("fields", "words"), [
    ({"compression": "int8", "zero_stage": 2}, "zero_stage=2: expected 0 or 1 with compression='int8'"),
    ({"synchronisation": "byteps", "zero_stage": 1}, "zero_stage=1: expected 0 with synchronisation='byteps'"),
    ({"lora_rank": 4}, "lora_rank=4: expected None with adapter='none'"),
])  # fmt: skip
def test_what_no_plan_has_beside_each_other_is_refused_by_name(fields, words):
    with pytest.raises(InvalidValue, match=words):
        Plan(global_batch=8, seq_len=128, **fields)


@pytest.mark.parametrize(("framework", "fields", "reason"), [
    ("ddp", {"tensor_parallel": 2}, "degrees_of_framework"),
    ("megatron-core", {"zero_stage": 3, "pipeline_parallel": 2}, "zero_pipeline"),
    ("deepspeed", {"zero_stage": 1, "parameter_offload": 0.5}, "parameter_offload"),
])  # fmt: skip
def test_what_a_framework_hasn_t_is_refused_with_the_reason(framework, fields, reason):
    software = load_framework(framework)
    with pytest.raises(IllegalPlan) as refused:
        Plan(global_batch=8, seq_len=128, **fields).resolve(software).check_framework(software)
    assert refused.value.reason == reason
