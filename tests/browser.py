"""A browser without a screen for pages; a test that needs one is skipped, with the reason, where none is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STILL = """await new Promise((done) => {
    let frames = 0;
    const changes = new MutationObserver(() => { frames = 0; });
    changes.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
    const next = () => {
        frames += 1;
        if (frames < 4 || document.getElementById('reading')?.textContent === '…') { requestAnimationFrame(next); return; }
        changes.disconnect();
        done();
    };
    requestAnimationFrame(next);
});"""
"""Until nothing on the page changed for three frames and nothing is being worked out."""
NAMES = ("chromium", "chromium-browser", "google-chrome")

QUICKLY = "{preload: false, resultTypes: ['violations']}"
"""Options of axe: all its rules, but no list of what passes, and no style fetched once more, of which these pages have none."""


RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
"""By which axe looks: those that are off unless they are named too, as that of the size of targets."""


class Browser:
    """Chromium under Selenium, with what its pages log and request."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.untouched: Path | None = None
        """The page that is open, as long as no test opened another or changed what it shows."""

    def resize(self, width: int, height: int, dark: bool = False, mobile: bool = False) -> None:
        """Give the page a size and the system's colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.coloured(dark)

    def coloured(self, dark: bool) -> None:
        """Have the system's colours be dark or light."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file, past what was logged before."""
        self.visit(page.as_uri() + fragment)

    def visit(self, address: str) -> None:
        """Load a page of an address, past what was logged before."""
        self.untouched = None
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns, awaited."""
        text = f"const given = [...arguments], done = given.pop(); (async () => {{ {script} }})()"
        text += ".then((value) => done([true, value]), (error) => done([false, String(error)]))"
        answer = self.driver.execute_async_script(text, *arguments)
        assert answer[0], answer[1]
        return answer[1]

    def comes_to(self, script: str, value: object) -> None:
        """Run a script until it returns a value, which a page may take its time for."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, 0.05).until(lambda _: self.run(script) == value)

    def settle(self) -> None:
        """Wait until the page stands still."""
        self.run(STILL)

    def complaints(self) -> list[str]:
        """What the console holds of warnings and errors."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


@contextlib.contextmanager
def opened(folder: Path | None = None) -> Iterator[Browser]:
    """A browser, for as long as the block lasts, that saves files in a folder."""
    selenium = pytest.importorskip("selenium.webdriver", reason="drives a browser: pip install costmodel[test]")
    program = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, NAMES)), None)
    steering = shutil.which("chromedriver")
    if program is None or steering is None:
        pytest.skip("no Chromium with its driver here: apt-get install chromium chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900"):
        options.add_argument(word)
    if folder is not None:
        options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(steering))
    try:
        driver.set_script_timeout(600)  # against what never ends: on a busy machine a page takes a minute
        yield Browser(driver)
    finally:
        driver.quit()


def cut(browser: Browser) -> list[str]:
    """Words of the chart of a page that stand beyond it."""
    return browser.run("""const {left, right, top, bottom} = document.getElementById('chart').getBoundingClientRect();
        return [...document.querySelectorAll('#chart text')].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.width && (box.left < left - 2 || box.right > right + 2 || box.top < top - 2 || box.bottom > bottom + 2);
        }).map((one) => one.textContent)""")  # fmt: skip


def barriers_in_all_colours(browser: Browser) -> list[list[object]]:
    """What axe-core finds fault with on the page as it is now, by day and, of colours, by night."""
    found = barriers(browser)
    browser.coloured(dark=True)
    browser.settle()
    found += barriers(browser, "color-contrast")
    browser.coloured(dark=False)
    return found


def barriers(browser: Browser, *rules: str) -> list[list[object]]:
    """What axe-core finds fault with on the page as it is now; by some of its rules where they are named."""
    package = importlib.util.find_spec("axe_playwright_python")  # of which only axe-core itself is used
    if package is None:
        pytest.skip("brings axe-core: pip install costmodel[test]")
    if not browser.run("return Boolean(window.axe)"):
        script = Path(str(package.origin)).parent / "axe.min.js"
        browser.driver.execute_script(script.read_text(encoding="utf-8"))
    return browser.run(
        f"const some = {{runOnly: given.length ? {{type: 'rule', values: given}} : {RULES}}};"
        f"const found = await axe.run(document, {{...{QUICKLY}, ...some}});"
        "return found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)])", *rules
    )  # fmt: skip
