"""Records of measured runs: read whole, refused by name, nothing dropped in silence."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import pytest

import costmodel
from costmodel.catalogue.records import Refused, read_records, run_of
from costmodel.catalogue.records.schema import described, schema
from costmodel.cli.new import _table, _template
from costmodel.evaluation.estimation import estimate
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled, UnknownName, UnreadableFile
from tests.tensors import parameter_tensors

MEASURED = Path(__file__).parents[2].parent / "shared" / "reference" / "measured"
RECORD = {
    "id": "set/1", "campaign": "we/fsdp2/h100-sxm", "release": "1.2", "trust": "high",
    "model": {"name": "ours", "kind": "decoder", "layers": 24, "hidden": 2048, "heads": 16, "kv_heads": 4, "feed_forward": 5632,
              "vocabulary": 32000, "padded_vocabulary": 32128},
    "cluster": {"device": "h100-sxm", "gpus": 16, "gpus_per_node": 8, "node_link": "nvswitch", "node_bandwidth": 450e9,
                "network": "efa", "network_bandwidth": 50e9},
    "software": {"framework": "fsdp2", "attention_kernel": "flash3", "loss": "compiled", "gradient_bits": 16, "untuned": True},
    "plan": {"global_batch": 64, "seq_len": 4096, "micro_batch": 2, "tensor_parallel": 2, "recompute": "full"},
    "assumed": {"optimizer": "adam", "cuda_graphs": "none", "zero_stage": 2},
    "unstated": ["loss"],
    "measured": {"tokens_per_s_per_gpu": 4096.0, "peak_memory_bytes": 4e10, "memory_kind": "reserved", "memory_of": "rank0"},
    "use": {"time": True, "memory": False, "verdict": True},
}  # fmt: skip


def with_(path: str, value: object) -> dict:
    record = copy.deepcopy(RECORD)
    inner = record
    *groups, key = path.split(".")
    for group in groups:
        inner = inner.setdefault(group, {})
    inner[key] = value
    return record


def test_a_record_is_model_cluster_framework_and_plan():
    run = run_of(RECORD)
    assert (run.model.vocabulary, run.model.kv_heads) == (32128, 4)
    assert (run.cluster.gpus, run.cluster.gpus_per_node, run.cluster.levels[-1].name) == (16, 8, "efa")
    assert run.cluster.levels[-1].line_rate == 50e9
    assert (run.framework.name, run.plan.loss, run.framework.gradient_bytes) == ("fsdp2", "compiled", 2.0)
    assert not run.framework.older_flash
    assert (run.plan.tensor_parallel, run.plan.recompute, run.plan.zero_stage, run.plan.optimizer) == (2, "full", 2, None)
    assert (run.id, run.campaign, run.trust) == ("set/1", "we/fsdp2/h100-sxm", "high")


def test_the_step_follows_from_the_throughput_of_a_gpu():
    assert run_of(RECORD).step_time == pytest.approx(64 * 4096 / 4096.0 / 16)


def test_what_is_not_this_plans_is_kept_and_not_used():
    run = run_of(RECORD)
    assert run.peak_memory == 4e10 and run.peak_bytes is None and run.seconds == run.step_time and run.ran


def test_what_the_library_cannot_express_is_on_the_run():
    assert run_of(RECORD).unexpressed == {"software.untuned": True}


def test_what_is_stated_stands_before_what_is_assumed():
    assert run_of(with_("plan.zero_stage", 3)).plan.zero_stage == 3


def test_a_usual_loss_that_is_assumed_is_the_frameworks_of_its_release():
    deepspeed = with_("software.framework", "deepspeed") | {"release": "2023-06"}
    said = deepspeed["software"].pop("loss")
    assumed = deepspeed | {"assumed": {"loss": "upcast"}}
    stated = deepspeed | {"software": deepspeed["software"] | {"loss": "upcast"}}
    assert said == "compiled" and run_of(assumed).plan.loss is None and run_of(stated).plan.loss == "upcast"
    assert run_of(deepspeed | {"assumed": {"loss": "compiled"}}).plan.loss == "compiled"


def published(name: str, **fields: object) -> dict:
    """A record of a shape that is said to be a public configuration's."""
    shape = costmodel.load_model(name)
    sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward", "vocabulary", "gated", "norm",
             "tied_embeddings", "learned_positions", "sliding_window", "windowed_layers", "dropout")  # fmt: skip
    return {"name": "theirs", "basis": "public configuration", **{key: getattr(shape, key) for key in sizes}} | fields


def test_a_public_configurations_record_has_what_that_says_of_the_models_code():
    """google/gemma-2-9b and openai-community/gpt2-xl ``config.json``: final_logit_softcapping, activation_function."""
    gemma = run_of(with_("model", published("gemma2-9b"))).model
    assert gemma.capped_logits and gemma.wide_norm
    assert run_of(with_("model", published("gpt2-xl", attention_bias=True))).model.activation == "gelu-new"
    for said in (published("gemma2-9b", basis="stated shape"), published("gemma2-9b", tied_embeddings=False)):
        other = run_of(with_("model", said)).model
        assert not other.capped_logits and not other.wide_norm


def test_habits_stand_before_named_values():
    assert run_of(with_("software.habits", {"logit_bytes": 7.0})).framework.logit_bytes == 7.0


REFUSED = {
    "software.attenton_kernel": ("flash2", UnreadableFile, "software.attenton_kernel"),
    "software.attention_kernel": ("flash9", InvalidValue, "flash2"),
    "software.habits": ({"logit_byte": 4.0}, UnreadableFile, "software.habits.logit_byte"),
    "software.framework": ("ourtrainer", UnknownName, "software.nearest"),
    "plan.tensor_paralel": (2, UnreadableFile, "plan.tensor_paralel"),
    "plan.tensor_parallel": ("two", InvalidValue, "tensor_parallel"),
    "model.layer": (3, UnreadableFile, "model.layer"),
    "model.kind": ("hybrid", NotModelled, "hybrid"),
    "cluster.node_link": ("nvlnk", InvalidValue, "nvlink"),
    "cluster.node_bandwidth": (-1.0, InvalidValue, "bytes/s"),
    "cluster.device": ("h100-sxn", UnknownName, "h100-sxm"),
    "measured.memory_kind": ("resident", InvalidValue, "allocated"),
    "measured.out_of_memory": ("yes", InvalidValue, "true or false"),
    "measured.step_times": (1.0, UnreadableFile, "measured.step_times"),
    "unstated": ("loss", InvalidValue, "a list"),
    "colour": ("red", UnreadableFile, "colour"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_no_record_has_is_refused_by_name(path):
    value, error, said = REFUSED[path]
    with pytest.raises(error, match=said.replace(".", r"\.")):
        run_of(with_(path, value))


def test_every_value_of_the_software_is_taken():
    for key, field in schema()["software"].items():
        for value in (*field.choices, *field.values):
            dtype = "mxfp8" if value == "fused" and key == "grouped_experts" else "bf16"
            record = with_(f"software.{key}", value)
            record["plan"]["dtype"] = dtype
            run = run_of(record)
            assert (f"software.{key}" in run.unexpressed) == (bool(field.choices and not field.plan) and key != "scaling")


def test_software_that_the_catalogue_lacks_is_read_by_the_nearest_under_its_own_name():
    record = with_("software.framework", "ourtrainer")
    record["software"]["nearest"] = "fsdp2"
    run = run_of(record)
    assert run.framework.name == "ourtrainer" and run.framework.owner == run_of(RECORD).framework.owner


def test_links_are_those_of_the_machine():
    """A node of GeForce cards sends through the host's memory, at half of what cards with peer-to-peer reach."""
    on = {"device": "rtx-4090", "gpus": 4, "gpus_per_node": 4, "node_link": "pcie4", "network": "none"}
    geforce = run_of(with_("cluster", on)).cluster.levels
    peers = run_of(with_("cluster", on | {"node_peer_to_peer": True})).cluster.levels
    measured = run_of(with_("cluster", on | {"node_measured": 9e9})).cluster.levels
    assert len(geforce) == 1 and geforce[0].topology == "tree"
    assert peers[0].bandwidth == 2 * geforce[0].bandwidth and measured[0].bandwidth == 9e9
    assert costmodel.machine("rtx-4090", 4).levels[0].bandwidth == geforce[0].bandwidth * 25 / 32  # of what its host gives
    half = run_of(with_("cluster.node_bandwidth", 225e9)).cluster.levels[0].bandwidth
    assert half == pytest.approx(run_of(RECORD).cluster.levels[0].bandwidth / 2)


def test_a_job_on_several_racks_has_as_many_nodes_on_each():
    """NVIDIA's of 128 nodes of 4 in MLPerf v5.1 on racks of 18 (SEGMENT=16 of its configuration); one rack holds it whole."""
    on = {"device": "gb200", "gpus_per_node": 4, "node_link": "nvswitch", "link_domain": 72, "network": "infiniband"}
    for gpus, each in ((512, 64), (576, 72), (72, 72), (64, 72)):
        assert run_of(with_("cluster", on | {"gpus": gpus})).cluster.levels[0].size == each


def test_names_of_the_catalogue_are_enough():
    record = {"model": "llama3-8b", "cluster": {"name": "dgx-h100", "gpus": 16}, "plan": {"global_batch": 8, "seq_len": 2048}}
    run = run_of(record)
    assert (run.model, run.framework.name) == (costmodel.load_model("llama3-8b"), "megatron-core")
    assert run.cluster == costmodel.load_cluster("dgx-h100", 16)


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_new_file_of_runs_is_read_and_estimated(tmp_path, ending):
    path = tmp_path / f"mine{ending}"
    path.write_text(_template("run", str(path)))
    runs = costmodel.load_runs(path)
    assert [run.id for run in runs] == ["mine/1", "mine/2"]
    for run in runs:
        assert costmodel.estimate(run.model, run.cluster, run.plan, run.framework).step_time > 0


def test_a_table_says_what_lines_say(tmp_path):
    lines, table = tmp_path / "runs.jsonl", tmp_path / "runs.csv"
    lines.write_text(json.dumps(RECORD))
    table.write_text(_table(lines.read_text()))
    assert costmodel.load_runs(lines) == costmodel.load_runs(table)


def test_a_bad_record_is_told_with_its_place_and_stops_no_other(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(["{", json.dumps(RECORD), "[1]", json.dumps(with_("plan.seq_len", -1)), '{"id": "empty"}']))
    found = list(read_records(path))
    assert [isinstance(one, Refused) for one in found] == [True, False, True, True, True]
    assert all("line" in one.place for one in found if isinstance(one, Refused))
    with pytest.raises(UnreadableFile, match="line 1"):
        costmodel.load_runs(path)


def test_every_key_is_described_with_its_unit():
    text = described()
    for group, fields in schema().items():
        for key in fields:
            assert (key if group == "record" else f"{group}.{key}") + " [" in text


@pytest.mark.slow
@pytest.mark.skipif(not MEASURED.is_dir(), reason="no folder of measured runs beside the repository")
@pytest.mark.parametrize("name", ["dev.jsonl", "released.jsonl"])
def test_every_measured_run_is_read_or_outside_of_what_is_modelled(name):
    runs = list(read_records(MEASURED / name))
    assert all(one.framework.trains_on(one.cluster.device) for one in runs if not isinstance(one, Refused))
    refused = [one for one in runs if isinstance(one, Refused)]
    assert len(refused) < 30
    for one in refused:
        with pytest.raises(CostModelError):
            run_of(one.record)
        assert any(word in one.reason for word in ("described", "no device")), one.reason


def test_a_head_of_two_outputs_is_counted_as_the_published_model_for_questions_counts_it():
    """BERT-large has 335,141,888 parameters with its pooler; BertForQuestionAnswering has none, and 1,024 x 2 + 2 of its own."""
    pooler, rows_of_segments = 1024 * 1024 + 1024, 2
    model = {
        "name": "BERT-large", "kind": "encoder", "layers": 24, "hidden": 1024, "heads": 16, "feed_forward": 4096, "gated": False,
        "norm": "layernorm", "vocabulary": 30522, "tied_embeddings": True, "learned_positions": 512 + rows_of_segments,
        "attention_bias": True, "output_bias": True, "feed_forward_bias": True, "embedding_norm": True, "causal": False,
        "last_norm": False, "head_outputs": 2, "head_bias": True,
    }  # fmt: skip
    run = run_of({
        "model": model, "cluster": {"device": "v100-sxm-16gb", "gpus": 8, "gpus_per_node": 8},
        "software": {"framework": "hf-trainer"}, "plan": {"global_batch": 64, "seq_len": 384},
        "measured": {"step_time_s": 0.9},
    })  # fmt: skip
    published = 335_141_888 - pooler + 1024 * 2 + 2
    assert run.model.parameters == published
    assert sum(tensor.numel for tensor in parameter_tensors(run.model)) == published
    whole = dataclasses.replace(run.model, head_outputs=0)
    assert run.model.flop_per_token(384) == pytest.approx(whole.flop_per_token(384) - 6 * 1024 * (30522 - 2), rel=1e-12)
    head, vocabulary = (estimate(one, run.cluster, run.plan, run.framework).step.forward for one in (run.model, whole))
    assert head < vocabulary


def test_what_a_record_assumes_of_its_software_counts_unless_it_is_said():
    record = {
        "model": "llama3-8b", "cluster": {"device": "h100-sxm", "gpus": 8}, "plan": {"global_batch": 8, "seq_len": 2048},
        "software": {"framework": "hf-fsdp"}, "assumed": {"gradient_bits": 16, "optimizer_bits": 32},
    }  # fmt: skip
    found = run_of(record).framework
    assert (found.gradient_bytes, found.optimizer_bytes) == (2.0, 4.0)
    said = record | {"software": {"framework": "hf-fsdp", "gradient_bits": 32}}
    assert run_of(said).framework.gradient_bytes == 4.0


@pytest.mark.parametrize(("version", "ranks"), [("0.6.0", 2), ("core_v0.9.0", 2), ("0.10.0", 1), ("d98e8a64dd", 1), (None, 1)])
def test_megatron_core_before_0_10_splits_experts_over_its_tensor_ranks(version, ranks):
    """NVIDIA/Megatron-LM@core_v0.6.0 megatron/core/transformer/moe/experts.py: a rank has an eighth of an expert's channels."""
    record = with_("model.experts", {"experts": 8, "experts_per_token": 2, "expert_feed_forward": 5632})
    record["software"] = {"framework": "megatron-core", "version": version}
    assert run_of(record).plan.expert_tensor_parallel == ranks
    assert run_of(record | {"model": RECORD["model"]}).plan.expert_tensor_parallel == 1  # of a model without experts
    record["plan"] |= {"expert_tensor_parallel": 1}
    assert run_of(record).plan.expert_tensor_parallel == 1
