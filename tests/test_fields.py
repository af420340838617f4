"""The table of fields: whatever a description has stands in a row, and what is made from the rows says what the rows say."""

import dataclasses
import itertools

import pytest

from costmodel import (
    Cluster,
    Device,
    Framework,
    InvalidValue,
    Plan,
    Transformer,
    estimate,
    load_cluster,
    load_framework,
    load_model,
)
from costmodel.cli.arguments import reader
from costmodel.description.cluster import Level
from costmodel.description.device import Efficiency
from costmodel.description.fields import table
from costmodel.evaluation.verdicts import verdict
from tests.structure import files_of_fields

ASKED = {"global_batch": 8, "seq_len": 128}
WITHOUT = {
    Transformer: {"published_parameters", "trained_length"}, Cluster: {"device", "levels", "frameworks", "title"}, Level: set(),
    Efficiency: set(), Device: {"dense_peak", "efficiency", "architecture", "layer_efficiency", "title"},
    Framework: {"constants", "apart", "elsewhere", "schedule", "switches", "server_systems", "own_runs", "owner", "release",
                "title"},
    Plan: set(),
}  # fmt: skip
"""Fields that are descriptions in themselves, texts that are shown, or checked against other fields alone."""


@pytest.mark.parametrize("described", WITHOUT, ids=lambda described: described.__name__)
def test_every_field_of_a_description_has_a_row_with_its_meaning(described):
    rows = table(described)
    assert {field.name for field in dataclasses.fields(described)} - set(rows) == WITHOUT[described]
    assert not [name for name, row in rows.items() if not row.help]


def beside(name):
    """A plan's fields with the choice that a field belongs to, if any."""
    owner = table(Plan)[name].owner
    return {**ASKED, **({owner.field: owner.values[0]} if owner else {})}


@pytest.mark.parametrize("name", table(Plan))
def test_a_plan_takes_what_a_row_lists_and_refuses_what_lies_beyond_in_the_row_s_words(name):
    row = table(Plan)[name]
    asked = beside(name)
    free = {"zero_stage": 0} if name in ("synchronisation", "compression") else {}
    for value in row.kind.choices:
        Plan(**{**asked, **free, name: value})
    if row.kind.bounds is not None:
        for number in row.kind.bounds:
            Plan(**{**asked, name: int(number) if row.kind.whole else number})
        for number in (row.kind.bounds[0] - 1, row.kind.bounds[1] * 2 + 1):
            with pytest.raises(InvalidValue, match=f"{name}=") as refused:
                Plan(**{**asked, name: int(number) if row.kind.whole else number})
            assert refused.value.field == name and " to " in refused.value.expected
    with pytest.raises(InvalidValue) as refused:
        Plan(**{**asked, name: "nonsense"})
    assert refused.value.field == name and refused.value.expected


@pytest.mark.parametrize("name", [name for name, row in table(Plan).items() if row.owner])
def test_a_field_that_belongs_to_a_choice_is_refused_with_any_other(name):
    row = table(Plan)[name]
    value = row.kind.choices[-1] if row.kind.choices else 0.5 if row.kind.bounds[1] == 1.0 else 7
    assert getattr(Plan(**{**beside(name), name: value}), name)
    owner = table(Plan)[row.owner.field]
    other = {} if owner.default not in row.owner.values else {
        row.owner.field: next(one for one in owner.kind.choices if one not in row.owner.values)
    }  # fmt: skip
    with pytest.raises(InvalidValue, match=f"{name}=.*: expected {row.default} with {row.owner.field}=.*has it"):
        Plan(**ASKED, **other, **{name: value})


def test_a_number_of_numpy_is_kept_as_python_s_own():
    np = pytest.importorskip("numpy")
    plan = Plan(global_batch=np.int64(8), seq_len=np.int32(128), optimizer_offload=np.float64(0.5))
    assert [type(one) for one in (plan.global_batch, plan.seq_len, plan.optimizer_offload)] == [int, int, float]


def test_an_option_reads_what_its_row_takes():
    for name, row in table(Plan).items():
        read, _ = reader(row)
        for value in row.kind.choices[:3]:
            said = ("no", "yes")[value] if isinstance(value, bool) else str(value)
            free = {"zero_stage": 0} if name in ("synchronisation", "compression") else {}
            Plan(**{**beside(name), **free, name: read(said)})


def test_links_options_and_words_are_each_of_one_field():
    rows = table(Plan).values()
    for said in ("short", "link", "called"):
        names = [getattr(row, said) for row in rows if getattr(row, said)]
        assert len(names) == len(set(names)), said


def test_a_field_is_named_in_fewer_files_than_it_was():
    named = sorted(len(files) for files in files_of_fields().values())
    assert named[len(named) // 2] <= 15


# A field that was added through the table


def test_expandable_segments_leave_no_gaps_and_are_torchtitan_s_default():
    """pytorch/torchtitan run_train.sh @0168bd5, pytorch/pytorch#96995. An unfused loss in 32 bit needs a block for itself."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    for name, usual in itertools.product(("megatron-core", "fsdp2"), (None, True, False)):
        software = load_framework(name, "hopper")
        plan = Plan(global_batch=8, seq_len=4096, zero_stage=software.zero_stage, expandable_segments=usual)
        bill = estimate(model, cluster, plan, software).memory
        passing = bill.activations + bill.temporaries + bill.logits + bill.buffers
        gaps = bool(usual is False or (usual is None and name == "megatron-core"))
        whole = estimate(model, cluster, dataclasses.replace(plan, expandable_segments=True), software).memory
        block = 4.0 * 4096 * 128256 if name == "fsdp2" else 0.0
        wanted = software.constants.memory.fragmentation * passing + block if gaps else 0.0
        assert bill.total - whole.total == pytest.approx(wanted, rel=1e-9, abs=1.0)


def test_a_plan_that_gaps_alone_keep_from_fitting_is_offered_an_allocator_without():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    software = load_framework("megatron-core", "hopper")
    offered = set()
    for length in range(512, 8192, 64):
        answer = estimate(model, cluster, Plan(global_batch=8, seq_len=length, zero_stage=1), software)
        if not answer.fits:
            offered |= {fix.change for fix in verdict(answer).fixes}
            break
    assert "expandable_segments=True" in offered
