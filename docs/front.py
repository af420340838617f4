"""The README's answers, made by the commands that it shows: the first answer, its pictures, and two people's questions."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from calibration.validate.readme import accuracy
from costmodel import Plan
from costmodel.description.labels import label
from costmodel.text.units import GiB, between

ROOT = Path(__file__).resolve().parents[1]
README, PICTURE, SCREEN = ROOT / "README.md", ROOT / "docs" / "images" / "answer.png", ROOT / "docs" / "images" / "page.png"
WIDTH = 100
"""Columns of the README."""
SECONDS, SETTLED = 120, 3
"""Within which a page has its answer, and after which its charts stand still."""
FIRST = "costmodel search llama3-70b --cluster dgx-h100 --nodes 8 --global-batch 1024 --seq-len 8192 --top 3"
QUESTIONS = {
    "one GPU: fine-tune Llama-3 8B on an RTX 4090": (
        "costmodel search llama3-8b --device rtx-4090 --framework hf-trainer --adapter lora,qlora --global-batch 16"
        " --seq-len 2048 --tokens 100M"
    ),
    "1,024 GPUs: train Llama-3 70B on p5.48xlarge": (
        "costmodel search llama3-70b --cluster p5.48xlarge --gpus 1024 --global-batch 1024 --seq-len 8192 --tokens 1T --price 2.5"
    ),
}
"""Who asks what, and the command that answers; the price is of a GPU for an hour."""


def asked(command: str, *more: str) -> str:
    """What a command prints, where it succeeds."""
    arguments = [sys.executable, "-m", *shlex.split(command), *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)}
    return subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment, cwd=ROOT).stdout


def first_answer() -> str:
    """The first question and its answer, as a block of a console."""
    return f"```console\n$ {wrapped(FIRST)}\n{asked(FIRST).rstrip()}\n```"


def wrapped(command: str) -> str:
    """A command on lines of the README, each but the last with a backslash, an option beside its value."""
    kept = re.sub(r"(--\S+) (?!-)", "\\1\0", command)
    lines = textwrap.wrap(kept, WIDTH - 4, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).replace("\0", " ")


def _answers(command: str) -> dict[str, str]:
    """The best plan that a search finds in a few words, by what they tell."""
    row: dict[str, Any] = json.loads(asked(command, "--top", "1", "--json"))["plans"][0]
    fields = {field.name: row[field.name] for field in dataclasses.fields(Plan)}
    plan = Plan(**{**fields, "rank_order": row["rank_order"].split("-")})
    words = shlex.split(command)
    days = f"{row['days']:,.0f} days" if row["days"] >= 2.0 else f"{24.0 * row['days']:.0f} hours"
    money = f", {row['price']:,.0f} at {row['price'] / row['gpu_hours']:g} a GPU-hour" if row.get("price") else ""
    return {
        "fastest plan that fits": label(plan) + ("" if plan.adapter == "none" else f", {plan.adapter}"),
        "a step, 90 % interval": f"{between(row['step_time_s'])} ({between(row['step_time_low_s'], row['step_time_high_s'])})",
        "memory of a GPU": f"{row['peak_memory_bytes'] / GiB:.0f} of {row['memory_limit_bytes'] / GiB:.0f} GiB",
        "tokens/s of a GPU": f"{row['tokens_per_second'] / row['gpus']:,.0f}",
        "the whole run": f"{words[words.index('--tokens') + 1]} tokens: {days}{money}",
    }


def two_questions() -> str:
    """The questions of two people, and a table of their answers."""
    commands = "\n".join(f"$ {wrapped(command)}" for command in QUESTIONS.values())
    columns = [_answers(command) for command in QUESTIONS.values()]
    lines = ["| | " + " | ".join(QUESTIONS) + " |", "|---|" + "---|" * len(QUESTIONS)]
    lines += [f"| {name} | " + " | ".join(column[name] for column in columns) + " |" for name in columns[0]]
    return f"```console\n{commands}\n```\n\n" + "\n".join(lines)


BLOCKS = {"answer": first_answer, "questions": two_questions, "accuracy": accuracy}
"""What stands between the markers of the README."""


def between_markers(text: str, name: str, content: str) -> str:
    """A text with what stands between the markers of a name replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def write() -> None:
    """Write the README's answers and its picture anew."""
    text = README.read_text(encoding="utf-8")
    for name, make in BLOCKS.items():
        text = between_markers(text, name, make())
    PICTURE.parent.mkdir(exist_ok=True)
    asked(FIRST, "--png", str(PICTURE))
    photograph()
    README.write_text(text, encoding="utf-8")


def photograph() -> None:
    """Save a picture of the what-if page of the first question, as a browser shows it once the page has its answer."""
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,800"):
        options.add_argument(option)
    driver = webdriver.ChromeService(shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder, webdriver.Chrome(options, driver) as browser:
        page = Path(folder) / "page.html"
        asked(FIRST.replace("search", "whatif", 1).partition(" --top")[0], "-o", str(page))
        page.write_text(page.read_text(encoding="utf-8").replace(str(page), page.name), encoding="utf-8")
        browser.get(page.as_uri())
        WebDriverWait(browser, SECONDS).until(lambda one: one.find_elements("css selector", "main table tbody tr"))
        time.sleep(SETTLED)
        browser.save_screenshot(str(SCREEN))
