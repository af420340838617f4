"""The page in a browser: everything that a visitor does, by mouse and by keys, without an error in the console."""

import json
from pathlib import Path

import pytest

pytest.importorskip("dash")
pytest.importorskip("selenium")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from costmodel.app.state import TABS
from tests.app.visits import BROWSED, SMALL, WIDTHS

pytestmark = [pytest.mark.slow, *BROWSED]


def slide(page, name, moves):
    """Move a slider by the arrow keys."""
    page.does(lambda: page.find(f"#x-{name}").send_keys((Keys.ARROW_RIGHT if moves > 0 else Keys.ARROW_LEFT) * abs(moves)))


def test_the_page_loads_with_an_answer_and_from_its_own_server_alone(page):
    page.open()
    assert "a step with" in page.text("h1") and "P(fastest)" in page.text("#said p")
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) >= 5
    assert page.find("#chart .js-plotly-plot .barlayer")
    loaded = page.browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and all(name.startswith((page.address, "data:", "blob:")) for name in loaded)


def test_another_question_is_searched(page):
    page.open(SMALL)
    before = page.text("h1")
    page.types("[name=gpus]", "32")
    assert page.text("h1") != before and "gpus=32" in page.query
    page.find("#ask details:nth-of-type(3) summary").click()
    page.does(lambda: page.find("[name=tp]").send_keys("2", Keys.TAB))
    assert "TP2" in page.text("h1")


def test_a_slider_is_dragged_and_reset(page):
    page.open(SMALL)
    before = page.text("h1 b")
    slider = page.find("#x-inner")
    width = slider.size["width"]
    page.does(lambda: ActionChains(page.browser).drag_and_drop_by_offset(slider, -width // 3, 0).perform())
    assert "nvlink bandwidth" in page.text("#diff")
    assert page.text("h1 b") != before
    page.does(lambda: page.find("[data-slider=inner] .reset").click())
    assert page.text("h1 b") == before and page.text("#diff") == ""


def test_a_bad_config_is_refused_and_a_good_one_taken(page, tmp_path):
    page.open(SMALL)
    bad, good = tmp_path / "bad.json", tmp_path / "config.json"
    bad.write_text('{"model_type": "luck"}')
    good.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "_name_or_path": "ours-1b",
    }))  # fmt: skip
    page.find("#file").send_keys(str(bad))
    WebDriverWait(page.browser, 20).until(lambda _: "luck" in page.text("#wrong"))
    page.browser.execute_script(
        """const data = new DataTransfer(); data.items.add(new File(['[1'], 'config.json'));
        document.querySelector('#drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true}));"""
    )
    WebDriverWait(page.browser, 20).until(lambda _: "not a JSON" in page.text("#wrong"))
    page.does(lambda: page.find("#file").send_keys(str(good)))
    assert page.text("#wrong") == "" and "ours-1b" in page.text("#own") and "ours-1b" in page.query
    page.does(lambda: page.find("#own button").click())
    assert "config" not in page.query


@pytest.mark.parametrize("width", WIDTHS)
def test_two_plans_and_two_clusters_stand_side_by_side(page, width):
    page.open(SMALL, width)
    compare = page.find("[data-do=compare]")
    page.does(compare.click)
    assert "beside=1" in page.query and compare.get_attribute("aria-pressed") == "true"
    page.does(lambda: page.find("#table tbody tr:nth-child(3) .plan").click())
    assert "beside=2" in page.query and "row" not in page.query and "Beside it" in page.text("#said")
    second = "#chart-beside .waterfalllayer, #chart-beside .barlayer"
    WebDriverWait(page.browser, 20).until(lambda _: page.find(second).is_displayed())
    page.does(lambda: page.find("#table tbody tr:nth-child(3) .plan").click())
    assert "row=2" in page.query and "beside=0" in page.query  # the two change places
    page.does(compare.click)
    assert "beside" not in page.query and compare.get_attribute("aria-pressed") == "false"
    page.does(lambda: page.find("[name=against]").send_keys("dgx-b200", Keys.TAB))
    assert "dgx-b200" in page.text("#said .beside") and compare.get_attribute("aria-pressed") == "true"


WRONG = {
    "gpus": ("sixty", "64.5", "0", "-8", "1e9", "9" * 30), "batch": ("1q", "0"), "seq": ("8q", "99999999"),
    "tp": ("two", "3,x", "0", "1;2"), "pp": ("-1", "1.5"), "zero": ("9", "two"), "recompute": ("some",), "mb": ("0",),
}  # fmt: skip


def test_a_wrong_input_is_said_in_one_line_and_loses_nothing(page):
    page.open(f"{SMALL}&x.inner=0.5")
    for summary in page.browser.find_elements(By.CSS_SELECTOR, "#ask details:not([open]) summary"):
        summary.click()
    shown = page.text("h1")
    for name, values in WRONG.items():
        field = page.find(f"[name={name}]")
        before = field.get_attribute("value")
        for value in values:
            page.types(f"[name={name}]", value)
            wrong = page.text("#wrong")
            assert 0 < len(wrong) < 260 and "\n" not in wrong, (name, value, wrong)
            assert field.get_attribute("value") == value and field.get_attribute("aria-invalid") == "true", (name, value)
            assert page.text("h1") == shown
            assert page.browser.execute_script("return document.body.classList.contains('stale')"), name
        page.types(f"[name={name}]", before)
        assert not page.browser.execute_script("return document.body.classList.contains('stale')")
        assert page.text("#wrong") == "" and page.text("h1") == shown and not field.get_attribute("aria-invalid"), name
    page.types("[name=gpus]", "")  # what is left empty is as it came
    assert page.find("[name=gpus]").get_attribute("value") == "64" and "gpus" not in page.query


def test_a_link_is_the_whole_question(page):
    page.open(f"{SMALL}&x.inner=0.5&tab=memory&row=1&sort=memory&tp=2,4")
    shown = {part: page.text(part) for part in ("h1", "#diff", "#heading", "#table")}
    link = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(link)
    page.drawn(1)
    assert {part: page.text(part) for part in shown} == shown
    assert page.find("#x-inner").get_attribute("value") == "-1" and page.find("[name=tp]").get_attribute("value") == "2,4"


def test_the_back_button_takes_back_what_was_asked_and_looked_at(page):
    page.open(SMALL)
    shown = page.text("h1")
    page.types("[name=gpus]", "32")
    page.turns_to("memory")
    page.does(page.browser.back)
    assert "gpus=32" in page.query and page.find("#tab-time").get_attribute("aria-selected") == "true"
    page.does(page.browser.back)
    assert page.query == SMALL and page.text("h1") == shown and page.find("[name=gpus]").get_attribute("value") == "16"


def test_a_log_is_dropped_and_taken_away_again_and_a_wrong_one_says_so(page, tmp_path):
    page.open(SMALL)
    before = page.text("#said")
    bad, good = tmp_path / "bad.log", tmp_path / "run.log"
    bad.write_text("nothing\n")
    line = "iteration {}/ 9 | consumed samples: 64 | elapsed time per iteration (ms): 4700.0 | learning rate: 1E-4 |\n"
    good.write_text("".join(map(line.format, range(1, 9))))
    page.find("#logs").send_keys(str(bad))
    WebDriverWait(page.browser, 20).until(lambda _: "bad.log: no step time" in page.text("#wrong"))
    page.does(lambda: page.find("#logs").send_keys(str(good)))
    assert "Calibrated on 1 measured step: 4.7 s of llama3-8b" in page.text("#said") and "Without own runs" in page.text("#said")
    page.does(lambda: page.find(".own-runs button").click())
    assert page.text("#said") == before and page.query == SMALL


def test_every_figure_can_be_read_as_a_table(page):
    page.open(f"{SMALL}&beside=2")
    page.find("#numbers summary").click()
    for tab in TABS:
        page.turns_to(tab)
        rows = page.awaits("return [...document.querySelectorAll('#numbers table')].map((table) => table.rows.length)")
        assert rows and min(rows) > 1, tab


def test_a_bad_link_says_what_is_wrong_and_the_page_still_answers(page):
    page.open("gpus=none")
    assert "gpus" in page.text("#wrong")
    page.types("[name=gpus]", "128")
    assert page.text("#wrong") == "" and "a step with" in page.text("h1")


@pytest.mark.parametrize(
    ("kind", "name"), [("csv", "costmodel.csv"), ("html", "costmodel.html"), ("launch", "costmodel-megatron.args")]
)
def test_the_answer_is_saved(page, kind, name):
    page.open(SMALL)
    file = Path(page.browser.saved) / name
    if kind == "launch":
        page.find("#launch").send_keys("megatron", Keys.ENTER)
    else:
        page.find(f"[data-do={kind}]").click()
    WebDriverWait(page.browser, 40).until(lambda _: file.exists() and file.stat().st_size > 500)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("rank,") if kind == "csv" else ("--num-layers 32" if kind == "launch" else "llama3-8b") in text
    file.unlink()


def test_keys_alone_are_enough(page):
    page.open(SMALL)
    keys = ActionChains(page.browser)
    reached = set()
    for _ in range(80):
        keys.send_keys(Keys.TAB).perform()
        active = page.browser.switch_to.active_element
        reached.add(active.get_attribute("name") or active.get_attribute("id") or active.get_attribute("data-set") or
                    active.get_attribute("data-do") or active.tag_name)  # fmt: skip
    assert {"model", "gpus", "cluster", "csv", "html", "link", "compare", "launch"} <= reached
    assert {"row=1", "tab-time", "panel", "x-inner", "x-efficiency", "image", "summary"} <= reached
    slide(page, "inner", -4)
    assert "x.inner=0.7" in page.query
    page.does(lambda: page.find("#tab-time").send_keys(Keys.ARROW_RIGHT))
    assert page.browser.switch_to.active_element.get_attribute("id") == "tab-memory" and "tab=memory" in page.query
