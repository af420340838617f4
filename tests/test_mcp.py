"""`costmodel mcp` answers the protocol's own client, over stdin and stdout, with what the library answers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import costmodel

MODEL, CLUSTER = "llama3-8b", "dgx-h100"
ASKED = {"model": MODEL, "cluster": CLUSTER, "global_batch": 64, "seq_len": 4096}
RECORD = {
    "model": MODEL, "cluster": {"name": CLUSTER, "gpus": 8}, "software": {"framework": "fsdp2"},
    "plan": {"global_batch": 64, "seq_len": 8192, "zero_stage": 3}, "measured": {"step_time_s": 9.6},
}  # fmt: skip


def session(*calls: tuple[str, dict]):
    """The names of a server's tools, and its answers to calls, in one session of a client that starts it."""
    mcp = pytest.importorskip("mcp", reason="drives the server by the protocol's own client: pip install costmodel[mcp]")
    environment = {**os.environ, "PYTHONPATH": str(Path(costmodel.__file__).parents[1])}

    async def talk():
        server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "costmodel", "mcp"], env=environment)
        async with mcp.Client(server) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(talk())


def test_an_official_client_gets_the_librarys_numbers_with_evidence_interval_and_ties(tmp_path):
    launch, runs = tmp_path / "train.sh", tmp_path / "runs.jsonl"
    model, cluster = costmodel.load_model(MODEL), costmodel.load_cluster(CLUSTER, gpus=8)
    plan = costmodel.Plan(global_batch=64, seq_len=4096, tensor_parallel=2).on(cluster)
    launch.write_text(costmodel.write_launch("megatron", plan, model, cluster=cluster), encoding="utf-8")
    runs.write_text(json.dumps(RECORD), encoding="utf-8")
    tools, answers = session(
        ("estimate", {**ASKED, "options": {"tensor_parallel": 2}}),
        ("search", {**ASKED, "top": 3, "options": {"pipeline_parallel": 1, "recompute": ["none", "full"]}}),
        ("compare", {"model": MODEL, "global_batch": 64, "seq_len": 4096, "over": "cluster", "values": [CLUSTER, "dgx-a100"],
                     "options": {"tensor_parallel": 1, "pipeline_parallel": 1}}),
        ("explain", {"files": [str(launch)], "cluster": CLUSTER, "options": {"gpus": 8}}),
        ("calibrate", {"runs": [str(runs)], "cluster": CLUSTER, "options": {"next": 0}}),
        ("cards", {"model": MODEL, "devices": ["h100", "4090"], "adapter": ["lora"], "options": {"batch": 8}}),
        ("cards", {"model": MODEL, "devices": ["h100", "h800", "4090"], "adapter": ["lora", "full"]}),
        ("gpus", {"model": MODEL, "tokens": "1T", "days": 30, "devices": ["h100"], "options": {"price": 2}}),
        ("diagnose", {"model": MODEL, "cluster": "8xh100", "mfu": "38%", "options": {"tp": 2}}),
        ("estimate", {"model": "meta-llama/Meta-Llama-3-8B", "cluster": "8xH100", "options": {"zero": 3, "mbs": 2}}),
        ("estimate", {**ASKED, "seq_len": "4k", "options": {"tp": 2, "bf16": False, "fp16": True}}),
        ("estimate", {**ASKED, "model": "llama-99"}),
        ("search", {**ASKED, "options": {"html": "/tmp/page.html"}}),
        ("estimate", {**ASKED, "model": "--help"}),
        ("estimate", {**ASKED, "options": {"tp": 2, "tensor_parallel": 4}}),
        ("estimate", {**ASKED, "options": {"bf16": False}}),
    )  # fmt: skip
    assert tools == ["search", "estimate", "cards", "gpus", "diagnose", "explain", "compare", "calibrate"]
    estimated, searched, compared, explained, calibrated, unsure, of_cards, in_time, diagnosed, *others = answers
    by_other_names, in_words, *refused = others
    assert [answer.is_error for answer in answers] == [False] * 5 + [True] + [False] * 5 + [True] * 5
    assert "global_batch" in unsure.content[0].text

    chosen, table = of_cards.structured_content, costmodel.cards(MODEL, ["h100", "h800", "4090"], adapter=["lora", "none"])
    assert chosen["answer"] == table.said() and chosen["ties"]["lora"] == [one.device for one in table.ties("lora")]
    assert [row["step_time_s"] for row in chosen["cards"]] == pytest.approx([one.estimate.step_time for one in table.fitting])
    assert all(row["evidence"] and row["interval_90"]["step_time_s"][0] < row["step_time_s"] for row in chosen["cards"])
    assert {row["device"] for row in chosen["does_not_fit"]} == {"rtx-4090"}

    sized, known_sizes = in_time.structured_content, costmodel.gpus_in_time(MODEL, "h100", tokens="1T", days=30, price=2)
    row = sized["clusters"][0]
    assert (row["gpus"], sized["answer"]) == (known_sizes[0].expected.gpus, known_sizes.said()) and row["evidence"]
    assert row["interval_90"]["days"] == pytest.approx([row["days_low"], row["days_high"]]) and sized["ties"] == [row["cluster"]]

    why, step = diagnosed.structured_content, costmodel.estimate(MODEL, "8xh100", tp=2)
    assert why["measured_step_time_s"] == pytest.approx(step.step_time * step.mfu / 0.38)
    assert why["interval_90"]["step_time_s"] == pytest.approx(list(step.time_interval)) and why["evidence"] == step.evidence
    assert sum(part["gap"] for part in why["parts"]) == pytest.approx(why["gap_s"])

    as_meant = costmodel.estimate(MODEL, "8xh100", zero_stage=3, micro_batch=2)
    assert by_other_names.structured_content["step_time_s"] == pytest.approx(as_meant.step_time, rel=1e-12)

    as_meant = costmodel.estimate(MODEL, CLUSTER, gbs=64, seq_len=4096, tp=2, dtype="fp16")
    assert in_words.structured_content["step_time_s"] == pytest.approx(as_meant.step_time, rel=1e-12)

    known = costmodel.estimate(model, cluster, plan)
    told = estimated.structured_content
    assert told["step_time_s"] == pytest.approx(known.step_time, rel=1e-12)
    assert told["interval_90"]["step_time_s"] == pytest.approx(list(known.time_interval), rel=1e-12)
    assert told["interval_90"]["peak_memory_bytes"] == pytest.approx(list(known.memory_interval), rel=1e-12)
    assert told["evidence"] == known.evidence

    found = searched.structured_content
    assert found["plans"] and found["ties"] == [row for row in found["plans"] if row["tied"]]
    assert found["evidence"] and found["interval_90"]["step_time_s"][0] < found["plans"][0]["step_time_s"]

    sides = compared.structured_content
    assert sorted(row["cluster"] for row in sides["choices"]) == ["dgx-a100", CLUSTER]
    assert sides["answer"].startswith(f"{CLUSTER} is ") and "with probability" in sides["answer"]
    assert all(row["evidence"] and row["interval_90"] and row["probability_faster"] is not None for row in sides["choices"])

    assert explained.structured_content["step_time_s"] == pytest.approx(known.step_time, rel=0.2)  # the file states more
    assert explained.structured_content["evidence"] == known.evidence
    assert calibrated.structured_content["runs"] == 1 and calibrated.structured_content["time_error"]

    unknown, writes, dashed, twice, open_ended = (answer.content[0].text for answer in refused)
    assert "llama-99" in unknown and "html" in writes and "dash" in dashed
    assert "tensor_parallel=4: expected nothing beside tp=2" in twice and "bf16=False: expected dtype beside it" in open_ended


def test_without_the_package_the_command_says_in_a_line_what_to_install(monkeypatch, capsys):
    from costmodel.cli import main

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    assert "pip install 'costmodel[mcp]'" in capsys.readouterr().err
