"""The server answers its own page alone, within limits, and keeps nothing between visitors."""

import html
import json
import re
import socket
from urllib.parse import urlencode

import pytest

pytest.importorskip("dash")

import costmodel
from costmodel import calibrate, load_model
from costmodel.app.answer import answered, command, described, difference, factors_of
from costmodel.app.page import template
from costmodel.app.server import LARGEST_REQUEST, exported, make_app, opened, show
from costmodel.app.state import SLIDERS, SORTS, TABS, read_fields, read_state
from costmodel.app.view import strip
from costmodel.evaluation.factors import scaled
from costmodel.interop.launchers import read_launch
from costmodel.page.site import PRESETS
from costmodel.text.units import between
from tests.commanding import refused

SMALL = "model=llama3-8b&gpus=16&batch=64"


@pytest.fixture(scope="module")
def client():
    return make_app().server.test_client()


def asked(query):
    """The parts that a link is answered with, by name."""
    names = ("said", "table", "tabs", "chart", "heading", "second", "second_heading", "second_style", "diff", "strip", "wrong",
             "panel")  # fmt: skip
    return dict(zip(names, show(query), strict=True))


def words(part):
    """All text of a component."""
    if isinstance(part, str):
        return part
    if isinstance(part, list | tuple):
        return " ".join(words(one) for one in part)
    return words(part.children) if getattr(part, "children", None) is not None else ""


def test_the_page_is_served_under_its_own_names_alone(client):
    for host in ("127.0.0.1:8050", "localhost:8050", "localhost", "[::1]:8050"):
        assert client.get("/", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example:8050", "localhost.evil.example", "169.254.169.254"):
        assert client.get("/", headers={"Host": host}).status_code == 403, host


def test_requests_of_other_pages_are_refused(client):
    for path in ("/", "/_dash-layout"):
        assert client.get(path, headers={"Host": "localhost:8050", "Origin": "http://evil.example"}).status_code == 403
        assert client.get(path, headers={"Host": "localhost:8050", "Origin": "http://localhost:8050"}).status_code == 200


def test_a_request_that_is_too_large_is_refused(client):
    body = {"output": "opened.data", "inputs": [{"id": "upload", "property": "data", "value": "x" * LARGEST_REQUEST}]}
    assert client.post("/_dash-update-component", json=body, headers={"Host": "localhost"}).status_code == 413


def test_the_page_forbids_to_load_from_elsewhere_and_does_not(client):
    page = client.get("/", headers={"Host": "localhost"})
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "http" not in policy
    assert page.headers["X-Frame-Options"] == "DENY" and page.headers["X-Content-Type-Options"] == "nosniff"
    text = page.get_data(as_text=True)
    assert 'src="http' not in text and 'href="http' not in text and "//cdn" not in text


def test_debugging_is_off(client):
    config = client.get("/", headers={"Host": "localhost"}).get_data(as_text=True)
    settings = json.loads(config.partition('id="_dash-config" type="application/json">')[2].partition("<")[0])
    assert settings["ui"] is False and settings["props_check"] is False and "hot_reload" not in settings


def test_a_link_is_answered_with_sentence_table_chart_and_sliders():
    parts = asked(SMALL)
    assert "a step with" in words(parts["said"]) and "P(fastest)" in words(parts["said"])
    assert "GiB over" in words(parts["table"]) and parts["chart"]["data"] and not parts["wrong"]
    assert parts["strip"]["inner"]["label"] == "nvlink bandwidth" and not parts["strip"]["outer"]["shown"]
    assert not parts["strip"]["imbalance"]["shown"]


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_has_its_chart_with_the_ghost_of_the_unmoved_answer(tab):
    parts = asked(f"{SMALL}&tab={tab}&x.inner=0.5")
    assert parts["chart"]["data"] and "Half the nvlink bandwidth" in parts["diff"]
    names = " ".join(str(trace.get("name")) for trace in parts["chart"]["data"])
    assert "before the change" in names


@pytest.mark.parametrize("tab", ["time", "memory", "sensitivity", "timeline"])
def test_a_plan_beside_it_has_a_chart_of_its_own(tab):
    parts = asked(f"{SMALL}&tab={tab}&beside=1")
    assert parts["second"]["data"] and parts["second_style"] != {"display": "none"} and "Beside it" in words(parts["said"])


def test_names_of_many_rows_have_one_line_each():
    query = "model=mixtral-8x7b&gpus=16&batch=64&tab=sensitivity"
    names = asked(query)["chart"]["layout"]["yaxis"]["ticktext"]
    assert len(names) > 6 and not any("<br>" in name for name in names)
    assert all("<br>" in name for name in asked(f"{SMALL}&tab=sensitivity")["chart"]["layout"]["yaxis"]["ticktext"])


def test_the_table_sorts_by_every_column():
    first = {}
    for key in SORTS:
        for down in (0, 1):
            rows = asked(f"{SMALL}&sort={key}&down={down}&more=1")["table"][0].children[2].children
            first[key, down] = [row.children for row in rows if words(row.children[0]).isdigit()]
    places = {asked: [words(row[0]) for row in rows] for asked, rows in first.items()}
    assert places["place", 0] == [str(place) for place in range(1, 9)]
    assert places["step", 0] == places["rate", 1] and sorted(places["step", 0]) == places["place", 0]
    memory = {down: [float(words(row[6])) for row in first["memory", down]] for down in (0, 1)}
    assert places["plan", 0] == places["plan", 1][::-1]
    assert all(len(set(places[key, 0])) == 8 for key in SORTS)
    assert memory[0] == sorted(memory[0]) and memory[1] == sorted(memory[1], reverse=True)


def test_a_bad_link_is_answered_with_what_is_wrong():
    parts = asked("gpus=none")
    assert "gpus='none'" in parts["wrong"]
    assert "nothing fits" in words(asked("model=llama3-70b&gpus=8&batch=8")["said"]).lower()


def test_a_config_is_read_by_the_strict_reader():
    config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
              "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
              "_name_or_path": "ours", "hidden_act": "silu", "rms_norm_eps": 1e-5}  # fmt: skip
    answer = opened({"name": "config.json", "text": json.dumps(config)})
    assert not answer["error"] and read_fields(answer["config"]).parameters == load_model("llama3-8b").parameters
    for bad, hint in (
        ("{", "not a JSON"), ("[]", "an object"), (json.dumps({**config, "num_hidden_layers": -1}), "num_hidden_layers"),
        (json.dumps({**config, "model_type": "luck"}), "luck"), ("x" * (2**20 + 1), "at most"), (None, "text"),
    ):  # fmt: skip
        answer = opened({"name": "config.json", "text": bad})
        assert hint in answer["error"] and "config" not in answer and "/tmp" not in answer["error"], bad


@pytest.mark.parametrize(("file", "own", "called"), [
    ("config.json", "ours", "ours"), ("config.json", "/home/me/secret", "config.json"), ("config.json", None, "config.json"),
    ("llama-of-ours.json", None, "llama-of-ours"), ("..\\..\\x/evil.json", None, "evil"), (None, None, "config.json"),
])  # fmt: skip
def test_a_dropped_config_is_called_as_it_calls_itself_or_as_its_file(file, own, called):
    config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
              "num_hidden_layers": 32, "vocab_size": 128256, "hidden_act": "silu", "_name_or_path": own}  # fmt: skip
    answer = opened({"name": file, "text": json.dumps(config)})
    assert not answer["error"] and read_fields(answer["config"]).name == called


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-a100", "dgx-b200", "mi300x-8"])
@pytest.mark.parametrize("name", SLIDERS)
def test_a_slider_reaches_as_far_as_the_answer_follows_and_says_where_it_ends(cluster, name):
    query = f"model=mixtral-8x7b&gpus=8&batch=64&cluster={cluster}"
    for factor in (0.125, 8.0):
        state = read_state(f"{query}&x.{name}={factor}")
        model, machine = described(state)
        about = strip(answered(state))[name]
        if not about["shown"]:
            assert factors_of(state, model, machine) == {}
            continue
        assert about["least"] < 0.0 < about["most"] or name == "imbalance"
        held = read_state(f"{query}&x.{name}={min(max(factor, 2 ** about['least']), 2 ** about['most'])}")
        assert factors_of(state, model, machine) == pytest.approx(factors_of(held, model, machine))
        if name == "efficiency":
            constants = scaled(model, machine, factors_of(state, model, machine))[1].device.efficiency
            fastest = max(*constants.gemm.values(), constants.attention_forward, constants.attention_backward)
            assert ("the peak" in about["text"]) == (factor == 8.0) == (fastest == pytest.approx(1.0))
            assert ("the peak" in difference(answered(state))) == (factor == 8.0)


def test_what_would_fit_is_offered_and_each_offer_is_a_question_that_fits():
    parts = asked("model=llama3-70b&gpus=8&batch=64")
    assert "Nothing fits" in words(parts["said"]) and "would fit with" in words(parts["table"])
    buttons = [row.children[0].children for row in parts["table"][0].children[2].children]
    assert len(buttons) >= 3
    for button in buttons:
        changes = getattr(button, "data-set")
        assert answered(read_state(f"model=llama3-70b&batch=64&{changes}" + ("" if "gpus" in changes else "&gpus=8"))).chosen
    assert "would fit with" not in words(asked(SMALL)["table"])


@pytest.mark.parametrize(("query", "said"), [
    ("model=llama3-70b&gpus=8&batch=64&framework=megatron-deepspeed&pp=2,4&zero=3", "with a ZeRO stage that the framework lacks"),
    ("model=llama3-8b&gpus=8&batch=8&tp=3", "don't multiply to the GPUs"),
])  # fmt: skip
def test_why_no_plan_is_legal_is_said_in_words(query, said):
    text = words(asked(query)["said"])
    assert "Nothing fits" in text and said in text and "_" not in text


def test_device_adapter_optimizer_and_tokens_are_asked_and_answered():
    page = template()
    for name in ("device", "adapter", "optimizer", "tokens", "oo", "ao"):
        assert f'name="{name}"' in page, name
    chosen = answered(read_state("model=llama3-8b&device=rtx-4090&gpus=8&batch=64&seq=2048&adapter=lora&optimizer=adam-8bit"))
    assert chosen.chosen.cluster.device.name == "rtx-4090" and chosen.chosen.plan.adapter == "lora"
    assert chosen.chosen.plan.optimizer == "adam-8bit" and "--device rtx-4090" in command(chosen.state)
    text = words(asked(f"{SMALL}&tokens=15T&price=2")["said"])
    best = answered(read_state(SMALL)).found.best
    seconds = 15e12 / (best.plan.global_batch * best.plan.seq_len) * best.step_time
    days = float(text.partition("15 T tokens take ")[2].partition(" days")[0].replace(",", ""))
    assert days >= 0.99 * seconds / 86400.0 and days < 1.3 * seconds / 86400.0


def test_compare_never_opens_on_a_twin_of_the_chosen_plan():
    for query in ("", SMALL, f"{SMALL}&row=1", f"{SMALL}&x.inner=0.5", "model=mixtral-8x7b&gpus=16&batch=64"):
        answer = answered(read_state(query))
        beside, chosen = answer.found[asked(query)["strip"]["other"]], answer.chosen
        ratios = (beside.step_time / chosen.step_time, float(beside.memory.total) / float(chosen.memory.total))
        assert max(abs(ratio - 1.0) for ratio in ratios) > 1e-3


def test_the_ranked_plans_and_the_report_are_saved():
    saved, wrong = exported({"kind": "csv", "link": "http://localhost/?"}, SMALL)
    assert wrong == ""
    assert saved["filename"] == "costmodel.csv" and saved["content"].startswith("rank,")
    saved, _ = exported({"kind": "html", "link": "http://localhost/?gpus=16"}, f"{SMALL}&x.inner=0.5")
    assert "Half the nvlink bandwidth" in saved["content"] and "http://localhost/?gpus=16" in saved["content"]


def test_the_launch_file_of_the_chosen_plan_is_saved(tmp_path):
    saved, wrong = exported({"kind": "launch", "format": "megatron"}, f"{SMALL}&row=1")
    assert wrong == "" and saved["filename"] == "costmodel-megatron.args"
    (tmp_path / "run.args").write_text(saved["content"])
    chosen = answered(read_state(f"{SMALL}&row=1")).chosen.plan
    read = read_launch([tmp_path / "run.args"], gpus=16).plan
    assert (read.tensor_parallel, read.global_batch) == (chosen.tensor_parallel, chosen.global_batch)
    for form in ("luck", None, "../etc/passwd"):
        saved, wrong = exported({"kind": "launch", "format": form}, SMALL)
        assert not isinstance(saved, dict) and "format" in wrong


def test_the_command_says_what_is_missing_or_wrong(run, tmp_path, monkeypatch):
    refused(run, tmp_path, ["app", "--port", "0"], "port=0")
    refused(run, tmp_path, ["app", "--port", "many"], "not a whole number")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(run, tmp_path, ["app"], "costmodel[app]")


def test_a_port_that_is_taken_is_refused_in_a_line(run, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = run("app", "--port", str(taken.getsockname()[1]))
    assert code == 2 and "that is free" in err and err.count("\n") == 1


def test_other_addresses_than_loopback_are_warned_of(run, monkeypatch):
    class Server:
        def serve_forever(self):
            raise KeyboardInterrupt

    monkeypatch.setattr("werkzeug.serving.make_server", lambda *_, **__: Server())
    monkeypatch.setattr("costmodel.app.server.compile_beside", lambda: None)  # a process that would outlive the test
    code, out, err = run("app", "--host", "0.0.0.0", "--allow-host", "planner.example")
    assert code == 130 and "warning: 0.0.0.0 is reachable from the network" in err and "http://localhost:8050/" in out
    code, out, err = run("app", "--port", "8051")
    assert code == 130 and "warning" not in err and "http://127.0.0.1:8051/" in out


def test_a_further_name_is_served_where_it_is_allowed():
    client = make_app(("localhost", "planner.example")).server.test_client()
    assert client.get("/", headers={"Host": "planner.example:80"}).status_code == 200
    assert client.get("/", headers={"Host": "127.0.0.1"}).status_code == 403


LINE = "iteration {}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): {} | learning rate: 1E-4 |\n"


def log_of(seconds):
    return {"name": "run.log", "text": "".join(LINE.format(step, 1000.0 * seconds) for step in range(1, 8))}


def test_a_log_of_the_plan_that_is_looked_at_narrows_its_interval_to_what_calibrating_on_it_leaves():
    before = answered(read_state(SMALL)).chosen
    seconds = 1.2 * before.step_time
    runs = opened({"logs": [log_of(seconds)]}, SMALL)["runs"]
    (step,) = read_state(f"{SMALL}&{urlencode({'runs': runs})}").own_steps
    assert (step.plan.resolve(before.framework), step.seconds) == (before.plan, pytest.approx(seconds))
    mine = calibrate(before.cluster, [(before.model, before.plan, seconds)])
    parts = asked(f"{SMALL}&{urlencode({'runs': runs})}&tp={before.plan.tensor_parallel}&cp={before.plan.context_parallel}"
                  f"&pp={before.plan.pipeline_parallel}&mb={before.plan.micro_batch}&zero={before.plan.zero_stage}")  # fmt: skip
    low, high = costmodel.estimate(before.model, mine, before.plan, mine.frameworks["megatron-core"]).time_interval
    assert high / low < 0.8 * before.time_interval[1] / before.time_interval[0]
    assert f"{between(low, high)} with 90 %" in words(parts["said"]) and "Calibrated on 1 measured step" in words(parts["said"])
    assert f"Without own runs {between(*before.time_interval)}" in words(parts["said"])
    elsewhere = words(asked(f"{SMALL}&cluster=dgx-a100&{urlencode({'runs': runs})}")["said"])
    assert "Calibrated on 0 measured steps" in elsewhere and "of another GPU or framework: left out" in elsewhere


@pytest.mark.parametrize(("log", "hint"), [
    ({"name": "x.log", "text": "nothing\nat all"}, "x.log: no step time"),
    ({"name": "/etc/x.log", "text": "/etc/passwd"}, "x.log: no step time"),
    ({"name": "x.log", "text": None}, "expected a text"), (None, "expected a text"), (log_of(4000.0), "within 8 times"),
])  # fmt: skip
def test_a_log_without_a_step_time_of_the_plan_is_refused_by_its_name(log, hint):
    answer = opened({"logs": [log]}, SMALL)
    assert hint in answer["error"] and "runs" not in answer and "root:" not in answer["error"] and "\n" not in answer["error"]


@pytest.mark.parametrize("runs", ["[", "[1]", "[[1,2,3,4]]", '[["llama3-8b","h100-sxm","megatron-core",{"a":1},2]]',
                                  '[["x","h100-sxm","megatron-core",{"global_batch":1,"seq_len":1},2]]'])  # fmt: skip
def test_a_link_with_measured_steps_that_are_none_says_so(runs):
    parts = asked(urlencode({"runs": runs}))
    assert parts["wrong"] and "\n" not in parts["wrong"]


def test_every_answer_says_what_was_asked_and_what_its_words_mean_and_offers_other_questions():
    for query in (SMALL, f"{SMALL}&x.memory=0.125", "model=llama3-70b&gpus=8&batch=8"):
        parts = asked(query)
        state = read_state(query)
        assert words(parts["said"]).startswith(f"{state.model} on {state.gpus} GPUs of dgx-h100, megatron-core: {state.batch} ")
    several = asked(f"{SMALL}&adapter=lora,qlora&dtype=bf16")
    assert "adapter lora or qlora; dtype bf16" in words(several["said"]) and "adapter lora" in words(several["table"])
    adapter = answered(read_state(f"{SMALL}&adapter=lora,qlora&dtype=bf16")).chosen.plan.adapter
    assert f"adapter {adapter}:" in words(several["said"]).partition(" MFU")[0].partition(" a step with ")[2]
    assert "PP pipeline parallel" in words(asked(SMALL)["table"])
    offered = re.findall(r'<a href="\?([^"]*)"', template())
    assert len(offered) == len(PRESETS) and all(answered(read_state(html.unescape(one))).chosen for one in offered)
