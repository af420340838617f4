"""The page as a visitor has it: what the tests of the page in a browser share."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import STILL

BROWSED = [pytest.mark.filterwarnings("ignore")]
"""Marks of tests that are there where Chromium (or Chrome) with its driver is; they are slow: ``pytest -m slow tests/app``."""
WIDTHS = {"laptop": (1280, 900), "tablet": (768, 1024), "phone": (390, 844)}
LONGEST = 300
"""Seconds after which nothing more is waited for."""
SMALL = "model=llama3-8b&gpus=16&batch=64"


class Page:
    """The page as a visitor has it."""

    def __init__(self, window, address):
        self.window, self.browser, self.address = window, window.driver, address

    def open(self, query="", width="laptop", dark=False):
        wide, high = WIDTHS[width]
        self.window.resize(wide, high, dark, mobile=width == "phone")
        self.browser.get(f"{self.address}?{query}" if query else self.address)
        return self.drawn(1)

    def awaits(self, script, *arguments):
        """What a script returns, awaited."""
        return self.window.run(script, *arguments)

    def turns_to(self, tab):
        """Open a tab, and wait until its chart stands."""
        if self.find(f"#tab-{tab}").get_attribute("aria-selected") != "true":
            self.does(lambda: self.browser.execute_script("document.getElementById(arguments[0]).click()", f"tab-{tab}"))
        self.awaits(STILL)

    def drawn(self, count):
        """Wait until the page has been drawn so often: from a cold start, until all that it runs on is compiled."""
        WebDriverWait(self.browser, LONGEST, 0.05).until(lambda driver: self.draws >= count and not self.asking)
        return self

    def followed(self):
        """Wait until sliders are followed in the browser."""
        there = "return window.costmodelLive.ready && Boolean(document.querySelector('#chart .js-plotly-plot .main-svg'))"
        WebDriverWait(self.browser, LONGEST, 0.05).until(lambda driver: driver.execute_script(there))

    @property
    def draws(self):
        return self.browser.execute_script("return window.costmodel && window.costmodel.took ? window.costmodel.took.length : 0")

    @property
    def asking(self):
        """Whether what stands is not yet the server's answer to the link."""
        return self.browser.execute_script("return document.querySelector('#answer').getAttribute('aria-busy') === 'true'")

    def answered(self):
        """Wait until what stands is the server's answer to the link."""
        WebDriverWait(self.browser, LONGEST, 0.05).until(lambda _: not self.asking)
        return self

    def does(self, what):
        """Do something after which the page draws anew; returns the milliseconds that this took."""
        before = self.draws
        what()
        self.drawn(before + 1)
        return self.browser.execute_script("return window.costmodel.took.at(-1)")

    def types(self, selector, text):
        """Put a text in the place of what a field holds, and leave it."""
        self.does(lambda: self.find(selector).send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, text, Keys.TAB))

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    @property
    def query(self):
        return self.browser.execute_script("return location.search.slice(1)")
