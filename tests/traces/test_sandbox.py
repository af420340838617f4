"""A traced program finds what it has written, leaves nothing where it seems to write, and reaches no network."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, socket, sys
from pathlib import Path
from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine.sandbox import Sandbox

Sandbox(Path(sys.argv[1])).install()
os.makedirs("made/inner", exist_ok=True)
Path("made/__init__.py").write_text("")
Path("made/inner/__init__.py").write_text("ANSWER = 42")
sys.path.append(os.getcwd())
from made.inner import ANSWER
os.chdir("made")
assert ANSWER == 42 and Path("__init__.py").exists() and os.access("inner", os.R_OK) and os.statvfs("inner").f_namemax
assert socket.getaddrinfo("127.0.0.1", 80)
try:
    socket.getaddrinfo("nobody.example.com", 80)
except ConnectionError as refused:  # libraries look into their caches then
    assert isinstance(refused, NotModelled)
    print(refused)
"""


def test_a_program_imports_what_it_wrote_and_asks_no_server_for_names(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    command = [sys.executable, "-B", "-c", PROGRAM, str(tmp_path / "elsewhere")]
    run = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("the program wants to reach nobody.example.com: traced code has no network")
    assert not any(home.iterdir())


STARTER = """
import os, subprocess, sys
from pathlib import Path
from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine import sandbox

if sys.argv[2] == "without":
    sandbox.confined = lambda folders: False
own = Path(sys.argv[1])
sandbox.Sandbox(own).install()
touch = [sys.executable, "-c", "open('left', 'w')"]
try:
    print(subprocess.run(["git", "--version"], capture_output=True).returncode)
    os.system("mkdir -p made; rm -f kept; cp kept copied")
    print(subprocess.run(touch, capture_output=True).returncode)
    print(subprocess.run(touch, capture_output=True, cwd=own).returncode)
except NotModelled as refused:
    print(refused)
"""


@pytest.mark.parametrize("how", ["with", "without"])
def test_programs_that_a_program_starts_write_nothing_outside_its_folder(tmp_path: Path, how: str) -> None:
    (home := tmp_path / "home").mkdir()
    (home / "kept").write_text("kept")
    command = [sys.executable, "-B", "-c", STARTER, str(own := tmp_path / "elsewhere"), how]
    run = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert [path.name for path in home.iterdir()] == ["kept"]
    told = run.stdout.split("\n", 1)
    assert told[0] == "0"
    if told[1].startswith("1"):  # with Landlock
        assert told[1].split() == ["1", "0"] and (own / "left").exists()
    else:
        assert told[1].startswith("the program starts 'mkdir -p made; rm -f kept; cp kept copied': what that writes would")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells a process of its parent's end")
def test_a_traced_rank_ends_with_what_started_it() -> None:
    child = "import time; from costmodel.traces.fake_machine import confinement; confinement.ends_with_its_parent(); "
    child += "print(1, flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline()  # the child's, which says that it runs
        started.kill()
        assert started.stdout.read() == b""  # its end of the pipe is closed: it has gone
