"""A server of the page and a browser, for all files that a worker is given."""

import os
import threading

import pytest


@pytest.fixture(scope="session")
def address():
    from werkzeug.serving import make_server

    from costmodel.app.server import make_app

    server = make_server("127.0.0.1", 0, make_app().server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join(10)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    from selenium import webdriver

    from tests.app.visits import BROWSER, DRIVER

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--disable-gpu", "--window-size=1440,900"):
        options.add_argument(argument)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")
    folder = tmp_path_factory.mktemp("saved")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.saved = folder
    driver.set_script_timeout(600)  # against what never ends
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    from tests.app.visits import Page

    browser.get_log("browser")
    yield Page(browser, address)
    wrong = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not wrong, wrong
