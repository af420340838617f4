"""Names are printable text in one line wherever they enter, and run nothing where they leave; wrong types end in a line."""

import csv
import dataclasses
import io
import shlex

import pytest

import costmodel
from costmodel import CostModelError, Plan, load_cluster, load_framework, load_model
from costmodel.cli import layout
from costmodel.cli.output import write_csv
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers import formats, write_launch
from costmodel.interop.launchers.writing import runner

LLAMA = load_model("llama3-8b")
PLAN = Plan(global_batch=64, seq_len=4096, data_parallel=8)
UNPRINTABLE = ("a\nrm -rf ~", "a\rb", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a\x85b", "")


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_a_name_that_is_no_line_of_printable_text_is_refused_wherever_it_enters(name):
    cluster = load_cluster("dgx-h100")
    for described in (LLAMA, cluster, cluster.device, cluster.levels[0], load_framework("megatron-core")):
        with pytest.raises(CostModelError) as refused:
            dataclasses.replace(described, name=name)
        assert str(refused.value).isprintable()


def smuggled(name: str) -> Transformer:
    """A model whose name came past its check."""
    model = dataclasses.replace(LLAMA)
    object.__setattr__(model, "name", name)
    return model


@pytest.mark.parametrize("format", formats())
def test_no_name_adds_a_line_to_a_launch_file(format):
    plain = write_launch(format, PLAN, LLAMA).splitlines()
    written = write_launch(format, PLAN, smuggled("llama3-8b\ntouch /tmp/owned\u2028touch /tmp/owned")).splitlines()
    if format in ("deepspeed",):  # JSON holds any text
        return
    comments = [line for line in written if line.startswith("#")]
    assert len(comments) == sum(line.startswith("#") for line in plain)
    assert not any(line.lstrip().startswith("touch") for line in written if not line.startswith(" "))


def test_a_name_in_a_command_line_is_one_word_of_it():
    name = "x; touch /tmp/owned $(id) `id`"
    for format in ("openrlhf", "colossalai"):
        lines = [line for line in write_launch(format, PLAN, smuggled(name)).splitlines() if not line.startswith("#")]
        words = [word for line in lines for word in shlex.split(line)]
        assert all(word == name or "owned" not in word for word in words)
    assert shlex.split(runner("accelerate", PLAN, "a b;c.yaml"))[-2] == "a b;c.yaml"


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1+1", "-1+1", "@SUM(1)"])
def test_a_cell_that_a_spreadsheet_would_run_is_quoted(name, tmp_path):
    write_csv(str(tmp_path / "a.csv"), ["name", "number"], [[name, -1.5]])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[1] == f"'{name},-1.5"
    found = costmodel.search(
        dataclasses.replace(LLAMA, name=name), load_cluster("dgx-h100", gpus=8), global_batch=8, seq_len=2048, check=False
    )
    for row in csv.DictReader(io.StringIO(found.to_csv())):
        assert not any(value.startswith(("=", "+", "@")) for value in row.values())


def test_a_cell_of_markdown_stays_in_its_row():
    lines = layout.markdown(layout.TerminalTable(("name",), (("a|b\nc <img src=x>",),), frozenset({0}), False, 1))
    assert lines[-1] == "| a\\|b c &lt;img src=x> |"


@pytest.mark.parametrize("wrong", [
    lambda: costmodel.replace(load_cluster("dgx-h100"), "rail.bandwidth=2x"), lambda: costmodel.load_network([]),
    lambda: costmodel.load_network(None), lambda: costmodel.read_step_times(5), lambda: costmodel.read_step_times(""),
    lambda: costmodel.names([]), lambda: costmodel.averaging_strategies(None, 1e6), lambda: costmodel.custom_schedule(None),
    lambda: costmodel.custom_schedule([5]), lambda: costmodel.design_cluster(LLAMA, None, global_batch=8, seq_len=512),
    lambda: costmodel.influences(LLAMA, None, PLAN), lambda: costmodel.next_run(None, [(LLAMA, PLAN)]),
    lambda: costmodel.next_run(load_cluster("dgx-h100"), 5), lambda: costmodel.next_run(load_cluster("dgx-h100"), [5]),
    lambda: list(costmodel.candidates(object(), 8)), lambda: costmodel.read_launch(5), lambda: costmodel.read_launch("."),
    lambda: dataclasses.replace(load_cluster("dgx-h100"), device=5),
    lambda: dataclasses.replace(load_cluster("dgx-h100").levels[0], latency=10**400),
    lambda: dataclasses.replace(LLAMA, layers=10**5000),
])  # fmt: skip
def test_values_of_wrong_kinds_end_in_a_line(wrong):
    with pytest.raises(CostModelError) as refused:
        wrong()
    assert "\n" not in str(refused.value)


def test_a_config_with_lists_for_names_is_refused_in_a_line(tmp_path):
    from tests.interop.test_huggingface import LLAMA as CONFIG
    from tests.interop.test_huggingface import write

    qwen = CONFIG | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1, "head_dim": 128}
    for kinds in ([["a"]], [{}], [None], [5]):
        with pytest.raises(CostModelError, match="layer_types"):
            Transformer.from_huggingface(write(tmp_path, qwen | {"layer_types": kinds}))


@pytest.mark.parametrize("wish", [None, [], 5, "csv", {}, {"kind": "launch"}, {"kind": "launch", "format": None}, {"kind": []}])
def test_an_export_of_nothing_is_refused_in_a_line(wish):
    pytest.importorskip("dash")
    from costmodel.app.server import exported

    content, said = exported(wish, "?model=gpt2&cluster=dgx-a100&gpus=8&batch=8&seq=512")
    assert not isinstance(content, dict) and said and "\n" not in said
