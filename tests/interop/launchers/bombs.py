"""Hostile files of a megabyte at most, by name; run as a script, it reads them and prints what each cost."""

from __future__ import annotations

import json
import resource
import sys
import time

from costmodel.interop.launchers import read_launch, read_step_times
from costmodel.text.errors import CostModelError

MOST_BYTES = 1_000_000
MOST_SECONDS = 5.0
"""Of one file, CPU time."""
MOST_MEMORY = 500e6
"""By which a process that reads them all may grow [bytes]."""
SCRIPT = "#!/bin/bash\n"
RUN = "\ntorchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4\n"


def aliased(first: str, opens: str, joined: str, closes: str) -> str:
    """YAML in which every one of ten lines repeats the one before nine times."""
    lines = [f"a0: &a0 {first}"]
    for place in range(1, 11):
        inner = ", ".join(joined.format(number=number, before=place - 1) for number in range(9))
        lines.append(f"a{place}: &a{place} {opens}{inner}{closes}")
    return "\n".join(lines) + "\n"


def products(lines: int) -> list[str]:
    """Lines of YAML, each the product of the one before with itself."""
    return [f'a{n}: "${{multiply:${{a{n - 1}}},${{a{n - 1}}}}}"\n' for n in range(1, lines)]


def script(text: str) -> str:
    """Lines of a shell script that starts a run."""
    return SCRIPT + text + RUN


def launch_files(size: int) -> dict[str, str]:
    """Texts of about so many characters."""
    few = size // 100
    return {
        "tables of aliases": aliased("{k: 1}", "{", "k{number}: *a{before}", "}"),
        "lists of aliases": aliased("[1]", "[", "*a{before}", "]"),
        "merged aliases": aliased("{k: 1}", "{<<: [", "*a{before}", "]}"),
        "an alias of itself": "a: &a [*a, *a]\nb: *a\n",
        "a long text repeated": "a: &a " + "x" * (size // 2) + "\nb: [" + "*a, " * (size // 8) + "]\n",
        "many merges": "<<: {}\n" * (size // 7),
        "sixties": "x: 1" + ":59" * (size // 3) + "\n",
        "references to a long text": "a: " + "x" * (size // 2) + "\n" + "".join(f"k{i}: ${{a}}\n" for i in range(few // 3)),
        "products of products": "a0: 2\n" + "".join(products(few // 4)),
        "blocks in blocks": script("if [ 1 = 1 ]; then\n" * (size // 25) + "A=1\n"),
        "a long condition": script("if [ " + "a " * (size // 2) + "]; then\nA=1\nfi\n"),
        "blanks in a condition": script("if [ " + " " * size + "]; then\nA=1\nelif [ x" + " " * 900 + "\nA=2\nfi\n"),
        "many conditions": script("if " + "[ 1 = 1 ] && " * (size // 14) + "[ 1 = 1 ]; then\nA=1\nfi\n"),
        "an open list": script("python train.py a.b=[" + "1 " * (size // 2) + "\n"),
        "flags of a case": script("-a | " * (size // 6) + "-b )\n"),
        "many options of a job": "#!/bin/bash\n#SBATCH" + " --a" * (size // 4) + RUN,
        "blanks in a product": 'a: "${multiply:' + " " * size + '"\n',
        "lists in lists of YAML": "x: " + "[a, " * (size // 4) + "\n",
        "dashes of YAML": "- " * (size // 2) + "a\n",
        "lists in lists of JSON": '{"a":' + "[" * (size // 2) + "]" * (size // 2) + "}\n",
        "tables in tables of JSON": '{"a":' * (size // 6) + "1" + "}" * (size // 6) + "\n",
        "an open text of JSON": '{"' + '\\"' * (size // 2) + "\n",
        "a key that many paths repeat": json.dumps({"k" * (size // 2): {f"a{i}": 1 for i in range(size // 20)}}) + "\n",
        "a key of JSON stated again": "{" + ",".join(f'"a":{i}' for i in range(size // 12)) + "}\n",
        "a number beyond all floats": '{"train_batch_size": ' + "9" * 400 + "}\n",
        "a key of TOML of many parts": "[b]\na" + ".a" * (size // 2) + " = 1\n",
        "a quoted key of TOML of many parts": '[b]\n"a"' + ' . "a"' * (size // 6) + " = 1\n",
        "an open text of TOML": '[x]\na = "' + '\\"' * (size // 2) + "." * 40 + "\n",
        "tables in tables of TOML": "[x]\na = " + "{a=" * (size // 3) + "\n",
        "variables eight to the tenth": script("A0=x\n" + "".join(f"A{n}=" + f"$A{n - 1}" * 8 + "\n" for n in range(1, 11))),
        "a wide variable repeated": SCRIPT + "A=" + "x" * 9000 + "\ntorchrun a.py --load " + "$A " * (size // 4) + "\n",
        "defaults never closed": script("A=" + "${" * (size // 2)),
        "defaults never closed, in lines": script("A=${\n" * (size // 5)),
        "arithmetic never closed": script("A=" + "$((" * (size // 3)),
        "arithmetic in arithmetic": script(("A=" + "$((1+" * 1300 + "1" + "))" * 1300 + "\n") * (size // 11_000)),
        "defaults in defaults": script(("A=" + "${A:-" * 1600 + "1" + "}" * 1600 + "\n") * (size // 10_000)),
        "backticks": script("A=" + "`" * size),
        "an open quotation": script('A="\n' + "x y z\n" * (size // 6)),
        "an open quotation that quotes": script("A='\n" + '"x" (y)\n' * (size // 8)),
        "quotations side by side": script('"a"' * (size // 3)),
        "quotations side by side in a line": "--load " + '"a"' * (size // 3) + "\n",
        "words": "--load " + "a " * (size // 2) + "\n",
        "words of an override": "a.b=1 a.c=2 " + "x " * (size // 2) + "\n",
        "flags": "--a " * (size // 4) + "\n",
        "flags that nobody knows": "--num-layers 2 " + " ".join(f"--hiddensize{i} 1" for i in range(size // 20)) + "\n",
        "blanks that set flags": "a=" + " " * size + "\n",
        "names that set nothing": "A=$B " * (size // 5) + "\n",
        "a flag stated again": " ".join(f"--num-layers {i}" for i in range(1, size // 22)) + "\n",
        "a name let": script("let " + "a" * size),
        "options declared": script("declare -" + "i" * size + " a=1"),
        "blanks in arithmetic": script("((a=x" + " " * size + "y))"),
        "blanks echoed": script(("A=$(echo " + " " * 9900 + "x)\n") * (size // 10_000)),
        "commas": '{"a": [' + ", " * (size // 2) + "\n",
        "comments": "{" + "/*" * (size // 2) + "\n",
        "lines": "\n" * size,
        "nothing": "\0" * size + "\n",
    }  # fmt: skip


def logs(size: int) -> dict[str, str]:
    """Logs of about so many characters."""
    return {
        "steps without a rate": "step: 1 " * (size // 8) + "tps: z\n",
        "blanks before a time": "train_step_timing in s" + " " * size + "x\n",
        "a long time": "elapsed time per iteration (ms): " + "1" * size + "\n",
        "a long step": "iteration " + "1" * size + "/ elapsed time per iteration (ms): 1.5\n",
        "bars": "|||||||\n" * (size // 8),
        "a table of no GPUs": "| tok/s/gpu | gbs | seq_len | dp | pp | tp |\n|-|-|-|-|-|-|\n| 1 | 1 | 1 | 0 | 0 | 0 |\n",
        "a run time beyond all floats": '{"log_history": [{"train_runtime": 1' + "0" * 400 + ', "step": 3}]}',
        "tables in tables": '{"a":' * (size // 5),
        "colours": "\x1b[" + "1;" * (size // 2) + "\n",
    }  # fmt: skip


def main(size: int) -> None:
    """Read every file, and print its name, its CPU seconds, the bytes by which the process grew, and how it ended."""
    started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read, texts in ((read_launch, launch_files(size)), (read_step_times, logs(size))):
        for name, text in texts.items():
            begun = time.process_time()
            try:
                read(text[:MOST_BYTES])
                said = ""
            except CostModelError as refused:
                said = str(refused)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - started) * 1024
            print(json.dumps([name, time.process_time() - begun, grown, said]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
