"""No file of a megabyte takes more than five seconds of a processor or 500 MB, and each ends in one line or a launch."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from costmodel.interop.launchers import read_launch
from costmodel.interop.launchers.shell import closings, expand, is_variable
from costmodel.interop.launchers.splitting import words
from costmodel.text.errors import CostModelError, UnreadableFile
from tests.interop.launchers.bombs import MOST_BYTES, MOST_MEMORY, MOST_SECONDS, launch_files, logs

SIZE = 80_000
"""A twelfth of the largest: what grows with the square of a size, and breaks the limit at the largest, shows here already."""
HOSTILE = st.sampled_from([
    "$((", "${", "$(", "))", "}", ")", "`", '"', "'", "\\", "\n", " ", "#", ";", "=", "A=", "$A", "${A:-", "let ", "declare -i ",
    "if x; then\n", "fi\n", "--a", "--num-layers ", "{", "[", "]", ",", ":", "- ", "&a ", "*a ", "<<: ", "a: ", "a.", "[a]\n",
    '"a": ', "//", "/*", "*/", "!!int ", "? ", "|\n", "1", "1e", "x", "\t", "\x00", "\u2028", "\xe9", "s/A/", "#!/bin/bash\n",
])  # fmt: skip


def read_all(size):
    run = subprocess.run(
        [sys.executable, "-m", "tests.interop.launchers.bombs", str(size)], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-2000:]
    read = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(read) == len(launch_files(size)) + len(logs(size))
    return read


def clear(said):
    return "\n" not in said and said.isprintable() and len(said) < 3000


@pytest.mark.slow
def test_hostile_files_cost_little_and_end_in_a_line():
    for name, seconds, grown, said in read_all(SIZE):
        assert seconds < MOST_SECONDS * SIZE / MOST_BYTES + 1.0, name
        assert grown < MOST_MEMORY, name
        assert clear(said), name


@pytest.mark.slow
def test_hostile_files_of_a_megabyte_cost_little_and_end_in_a_line():
    for name, seconds, grown, said in read_all(MOST_BYTES):
        assert seconds < MOST_SECONDS, name
        assert grown < MOST_MEMORY, name
        assert clear(said), name


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(HOSTILE, st.integers(1, 400)), min_size=1, max_size=8), st.integers(1, 20))
def test_any_heap_of_signs_ends_in_a_line_or_a_launch(parts, again):
    text = "".join(sign * times for sign, times in parts) * again + "\n"
    try:
        read_launch(text)
    except CostModelError as refused:
        assert "\n" not in str(refused)


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="ab '\"\\#\n\t\x0b=$", max_size=30), st.booleans())
def test_words_are_those_of_the_standard_library_but_for_a_hash_within_one(text, comments):
    """Which starts a comment there, and none in a shell: POSIX.1-2017, 2.3 Token Recognition, rules 8 and 9."""
    assume(not comments or not re.search(r"(?:\\.|[^ \t\r\n])#", text, re.DOTALL))
    try:
        wanted = shlex.split(text, comments=comments)
    except ValueError:
        wanted = None
    assert words(text, comments) == wanted


@given(st.text(alphabet="(){}[]ab", max_size=40))
def test_a_bracket_closes_where_counting_says(text):
    for start, opens in enumerate(text):
        closes = {"(": ")", "{": "}", "[": "]"}.get(opens)
        depth, wanted = 0, None
        for place in range(start, len(text) if closes else 0):
            depth += (text[place] == opens) - (text[place] == closes)
            if depth == 0:
                wanted = place + 1
                break
        assert closings(text).get(start) == wanted


def test_what_is_shared_within_bounds_is_read():
    text = "optim: &o {lr: 1}\na: *o\nb:\n  <<: *o\n  c: 2\ntrainer:\n  devices: 8\nmodel:\n  num_layers: 4\n"
    assert read_launch(text, dialect="nemo").plan_fields
    assert read_launch("#!/bin/bash\nA='--num-layers 4\n --hidden-size 64'\ntorchrun pretrain_gpt.py $A --bf16\n").framework
    assert expand("$A/$A", {"A": "x" * 9_000}) == "$A/$A"
    assert is_variable("a ${B} c") and not is_variable("a ${B")


@pytest.mark.parametrize("given", ["", ".", "/", "\0", b"x", None, 5, [], [None], {}, ["", ""]])
def test_what_names_no_file_is_refused_in_a_line(given):
    with pytest.raises(CostModelError) as refused:
        read_launch(given)
    assert clear(str(refused.value))


def test_a_pipe_a_folder_and_a_device_are_refused_without_being_opened(tmp_path):
    import os

    pipe = tmp_path / "pipe.sh"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(UnreadableFile, match="file"):
            read_launch(path)
