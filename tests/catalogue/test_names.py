"""Names as people write them: of the hub, of clouds, of drivers; parts of names; short names of options."""

import os
import re
import shutil

import pytest

from costmodel import Plan, load_cluster, load_device, load_model
from costmodel.catalogue import loader
from costmodel.catalogue.files import table_of
from costmodel.catalogue.spellings import is_hub_id, shape_name
from costmodel.cli import FAMILIES, build_parser
from costmodel.description.fields import table
from costmodel.text.errors import UnknownName
from tests.commanding import strict

WORK = ["--global-batch", "64", "--seq-len", "2048"]


# Models


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3.1-8b"), ("llama-3-8b", "llama3-8b"), ("Llama-3-8B", "llama3-8b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"), ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("LLAMA 3 70B", "llama3-70b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"), ("unsloth/llama-3.2-1b", "llama3.2-1b"), ("gpt2", "gpt2-small"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"), ("google/gemma-2-9b-it", "gemma2-9b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"), ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"), ("tiiuae/falcon-40b-instruct", "falcon-40b"), ("GPT-3 175B", "gpt3-175b"),
        ("bigscience/bloom", "bloom-176b"), ("qwen25-7b", "qwen2.5-7b"), ("llama38b", "llama3-8b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ],
)  # fmt: skip
def test_a_model_s_name_on_the_hub_is_a_name(name, entry):
    assert load_model(name) == load_model(entry)


def test_every_entry_is_found_by_its_name_in_other_letters_and_no_two_are_alike():
    names = loader.names("model")
    assert len({shape_name(name) for name in names}) == len(names)
    for name in names:
        for written in (name.upper(), name.replace("-", " "), name.replace("-", "_"), f"somebody/{name.title()}"):
            assert load_model(written).name == name


def test_every_other_name_of_a_model_leads_to_an_entry():
    for other, entry in table_of("aliases.toml")["model"].items():
        assert (is_hub_id(other) or re.fullmatch(r"[a-z0-9.-]+", other)) and entry in loader.names("model")
        assert load_model(other).name == entry


def test_a_name_that_may_be_several_is_refused_with_those():
    for load, name, candidates in (
        (load_model, "llama-8b", ("llama3-8b", "llama3.1-8b")), (load_device, "V100 PCIe", ("v100-pcie-16gb", "v100-pcie-32gb")),
        (load_device, "a100 pcie", ("a100-pcie-40gb", "a100-pcie-80gb")),
        (load_cluster, "gcp a3", ("gcp-a3-high", "gcp-a3-mega")),
    ):  # fmt: skip
        with pytest.raises(UnknownName) as refused:
            load(name)
        assert "\n" not in str(refused.value)
        assert all(candidate in str(refused.value) for candidate in candidates)


def test_another_size_or_shape_is_not_taken_for_one_that_is_near():
    names = ("meta-llama/Llama-3-18B", "Qwen/Qwen2.5-70B", "mistralai/Mistral-7B-v0.9", "facebook/opt-350m", "x" * 300, "a/b")
    for name in names:
        with pytest.raises(UnknownName):
            load_model(name)


def test_a_model_of_the_hub_s_cache_is_read_there(tmp_path, monkeypatch, run):
    """As huggingface_hub lays it out; ``main`` before an older snapshot, whatever the letters' case; nothing is downloaded."""
    config = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": %d, "num_attention_heads": 4, ' \
        '"intermediate_size": 128, "vocab_size": 1000}'  # fmt: skip
    folder = tmp_path / "hub" / "models--Some--Tiny-Model"
    for place, (snapshot, layers) in enumerate([("aaa", 3), ("bbb", 5)]):
        (folder / "snapshots" / snapshot).mkdir(parents=True)
        file = folder / "snapshots" / snapshot / "config.json"
        file.write_text(config % layers)
        os.utime(file, (1e9 - place, 1e9 - place))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("bbb\n")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert load_model("Some/Tiny-Model").layers == load_model("some/tiny-model").layers == 5
    shutil.rmtree(folder / "refs")
    assert load_model("Some/Tiny-Model").layers == 3  # the newest
    code, out, err = run("estimate", "Some/Tiny-Model", "--cluster", "dgx-h100", *WORK, "--json")
    assert code == 0, err
    assert strict(out)["gpus"] == 8
    with pytest.raises(UnknownName, match="cache of the hub"):
        load_model("Some/Other-Model")


def test_a_file_s_name_is_a_file_whatever_it_looks_like(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "meta-llama" / "Llama-3.1-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, '
        '"vocab_size": 1000}'
    )
    assert load_model("meta-llama/Llama-3.1-8B").layers == 2


# Devices and clusters


@pytest.mark.parametrize(
    ("load", "name", "entry"),
    [
        (load_device, "H100", "h100-sxm"), (load_device, "A100-80GB", "a100-sxm-80gb"), (load_device, "4090", "rtx-4090"),
        (load_device, "RTX4090", "rtx-4090"), (load_device, "A6000", "rtx-a6000"), (load_device, "v5p", "tpu-v5p"),
        (load_cluster, "p5", "aws-p5"), (load_cluster, "P5EN.48xlarge", "aws-p5en"), (load_cluster, "A3 Mega", "gcp-a3-mega"),
        (load_cluster, "DGX H100", "dgx-h100"), (load_cluster, "NVL72", "gb200-nvl72"),
    ],
)  # fmt: skip
def test_devices_and_clusters_are_found_as_people_write_them(load, name, entry):
    assert load(name) == load(entry)


# The command line


def test_options_have_the_short_names_of_frameworks_wherever_they_are(run):
    """On every command that has the long form, shown once, and taken for it."""
    parser = build_parser(FAMILIES)
    commands = next(action for action in parser._actions if action.dest == "command").choices
    short_names = {name: row.short for name, row in table(Plan).items() if row.short}
    seen = set()
    for name, command in commands.items():
        for field, short in short_names.items():
            action = command._option_string_actions.get(f"--{field.replace('_', '-')}")
            if action is not None:
                assert command._option_string_actions.get(f"--{short}") is action, (name, short)
                seen.add(short)
    assert {"tp", "pp", "cp", "ep", "dp", "mbs", "gbs"} <= seen
    assert run("estimate", "--help")[1].count("  --tensor-parallel") == 1
    assert "--tensor-parallel, --tp N" in run("estimate", "--help")[1]
    long = ["--tensor-parallel", "2", "--pipeline-parallel", "2", "--data-parallel", "2", "--micro-batch", "2"]
    short = ["--tp", "2", "--pp", "2", "--dp", "2", "--mbs", "2"]
    answers = [
        run("estimate", "llama-3-8b", "--cluster", "dgx-h100", *batch, "--seq-len", "2048", *plan, "--json")[1]
        for batch, plan in ((WORK[:2], long), (["--gbs", "64"], short))
    ]
    assert strict(answers[0]) == strict(answers[1])
    code, _, err = run("estimate", "llama3-8b", "--cluster", "dgx-h100", *WORK, "--tp", "2", "--tensor-parallel", "2")
    assert code == 2 and "more than once" in err


@pytest.mark.parametrize(
    ("kind", "word"), [("models", "llama"), ("devices", "h100"), ("clusters", "H100"), ("frameworks", "megatron")],
)  # fmt: skip
def test_a_word_narrows_a_list(run, kind, word):
    every, some = (strict(run(kind, *words, "--json")[1]) for words in ((), (word,)))
    assert 0 < len(some) < len(every)
    told = [f"{row['name']} {row.get('device', '')} {row.get('title', '')}".lower() for row in some]
    assert all(word.lower() in one for one in told)
    assert all(word.lower() not in row["name"] for row in every if row not in some)
    code, _, err = run(kind, "nothing-like-it")
    assert code == 2 and f"costmodel {kind}" in err


@pytest.mark.parametrize(("arguments", "offered"), [
    (["design", "llama3-8b", "--dtype", "fp8"], ""), (["compare", "--systems", "llama3-8b", "--dtype", "fp8"], ""),
    (["search", "llama3-8b", "--overlap-tensr", "yes"], "did you mean --overlap-tensor?"),
    (["search", "llama3-8b", "--tensor-paralel", "8"], "did you mean --tensor-parallel?"),
    (["train", "llama3-8b", "--tokns", "8"], "did you mean --tokens?"), (["search", "llama3-8b", "--xyzzy"], ""),
])  # fmt: skip
def test_an_option_is_offered_for_its_letters_not_for_its_dashes(run, arguments, offered):
    designed = ["--devices", "t4", "--gpus", "1", "--tokens", "1", *WORK]
    needed = designed if arguments[0] == "design" else ["--cluster", "dgx-h100", *WORK]
    err = " ".join(run(*arguments, *needed)[2].split())
    assert "unknown argument" in err and (offered in err if offered else "did you mean" not in err)


def test_no_error_names_an_option_that_its_command_has_not(run):
    for arguments in (
        ["models", "--help-all"], ["models", "--tp", "2"], ["accuracy", "--foo"], ["show", "x", "--zero", "1"],
        ["search", "x", *WORK, "--cluster", "y", "--clusterx", "z"], ["estimate", "x", *WORK, "--cluster", "y", "--lora-x"],
    ):  # fmt: skip
        code, _, err = run(*arguments)
        assert code == 2
        commands = next(action for action in build_parser(FAMILIES)._actions if action.dest == "command").choices
        known = commands[arguments[0]]._option_string_actions
        offered = err.split("unknown argument", 1)[1].split("'", 2)[2]
        named = [word.strip("`?();,") for word in offered.split() if word.startswith("--")]
        assert all(option in known for option in named), err


def test_a_size_with_a_point_is_never_taken_for_one_without():
    every = loader.names("model")
    sizes = {name: re.search(r"(?<![0-9.x])([0-9]+)\.([0-9]+)(?=b$)", name) for name in every}
    pointed = [(name, name[: found.start()] + found[1] + found[2] + "b") for name, found in sizes.items() if found]
    assert len(pointed) > 20
    for _, joined in pointed:
        assert joined in every or loader.alias("model", joined) is None
    for name in every:
        if (found := re.search(r"(?<![0-9.x])([1-9])([0-9]+)(?=b$)", name)) and "x" not in name:
            apart = f"{name[: found.start()]}{found[1]}.{found[2]}b"
            assert apart in every or loader.alias("model", apart) is None
