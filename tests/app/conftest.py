"""A server of the page and a browser, for all files that a worker is given."""

import threading

import pytest

from tests.browser import opened


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
    folder = tmp_path_factory.mktemp("saved")
    with opened(folder) as made:
        made.driver.saved = folder
        yield made


@pytest.fixture
def page(browser, address):
    from tests.app.visits import Page

    browser.complaints()
    yield Page(browser, address)
    assert browser.complaints() == []
