"""Arguments by what other programs call them, on the command line and in Python, which take the same value or stand for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from costmodel.text.errors import InvalidValue
from costmodel.text.suggestions import MEANT, meant, squeezed

FLAGS = {f"--{word}": said for said, words in {
    ("--adapter", "lora"): "lora use-lora use-peft", ("--adapter", "qlora"): "qlora load-in-4bit 4bit",
    ("--dtype", "bf16"): "bf16", ("--zero-stage", "1"): "zero1 zero-1 use-distributed-optimizer",
    ("--zero-stage", "2"): "zero2 zero-2", ("--zero-stage", "3"): "zero3 zero-3 full-shard",
    ("--zero-stage", "3", "--optimizer-offload", "1", "--parameter-offload", "1"): "zero3-offload",
    ("--zero-stage", "2", "--optimizer-offload", "1"): "zero2-offload zero-offload", ("--framework", "fsdp2"): "fsdp fsdp2",
    ("--fused-cross-entropy", "yes", "--fused-norms", "yes", "--fused-activation", "yes"): "use-liger-kernel",
    ("--recompute", "selective"): "recompute-activations", ("--dtype", "fp8"): "fp8", ("--dtype", "fp16"): "fp16",
    ("--framework", "ddp"): "ddp", ("--framework", "deepspeed"): "deepspeed", ("--framework", "megatron-core"): "megatron",
    ("--recompute", "full"): "gradient-checkpointing grad-checkpointing activation-checkpointing full-recompute",
    ("--attention", "flash"): "flash-attn use-flash-attn flash-attention",
    ("--attention", "unfused"): "no-flash no-flash-attn", ("--tensor-parallel", "1"): "no-tp",
    ("--pipeline-parallel", "1"): "no-pp", ("--context-parallel", "1"): "no-cp", ("--expert-parallel", "1"): "no-ep",
    ("--find", "batch"): "max-batch max-batch-size", ("--find", "sequence"): "longest max-sequence max-seq-len",
    ("--recompute", "none"): "no-recompute", ("--adapter", "int8-lora"): "load-in-8bit 8bit",
    ("--optimizer-offload", "1"): "cpu-offload offload offload-optimizer", ("--parameter-offload", "1"): "offload-params",
    ("--batching", "packed"): "packing sample-packing", ("--adapter", "none"): "full full-finetune",
    ("--algorithm", "grpo"): "grpo", ("--algorithm", "ppo"): "ppo", ("--algorithm", "dpo"): "dpo",
    ("--algorithm", "rloo"): "rloo", ("--algorithm", "kto"): "kto", ("--context-communication", "all-to-all"): "ulysses",
    ("--synchronisation", "parameter-server"): "parameter-server", ("--synchronisation", "all-reduce"): "allreduce",
}.items() for word in words.split()}  # fmt: skip
"""Switches of other programs, and the options that say the same, each with its value."""
ALGORITHMS = tuple(said[1] for said in FLAGS.values() if said[0] == "--algorithm")
"""Of post-training, which others name where an adapter stands here."""
OFF = {f"--{word}": said for said, words in {
    ("--recompute", "none"): "gradient-checkpointing grad-checkpointing activation-checkpointing full-recompute",
    ("--attention", "unfused"): "flash-attn use-flash-attn flash-attention",
    ("--zero-stage", "0"): "use-distributed-optimizer",
}.items() for word in words.split()}  # fmt: skip
"""The same where such a switch is turned off; one that isn't here says then what is so without it."""
BY_VALUE = {
    ("--recompute-method", "uniform"): ("--recompute", "full"), ("--recompute-num-layers", "1"): (),
    **{(f"--{option}", word): ("--recompute", word) for word in ("none", "full", "selective")
       for option in ("activation-checkpoint-mode", "activation-checkpointing", "gradient-checkpointing")},
    ("--activation-checkpoint-mode", "selective"): ("--recompute", "operators"),
    **{("--method", word): ("--algorithm", word) for word in ALGORITHMS},
    **{("--mixed-precision", word): ("--dtype", word) for word in ("bf16", "fp16", "fp8")},
    **{(option, word): (*software, "--zero-stage", stage) for option, software in {
        "--fsdp": ("--framework", "fsdp2"), "--fsdp-sharding-strategy": (), "--sharding-strategy": (),
    }.items() for word, stage in (("full_shard", "3"), ("shard_grad_op", "2"), ("no_shard", "0"))},
    **{("--strategy", f"deepspeed_stage_{stage}{word}"): ("--framework", "deepspeed", "--zero-stage", str(stage), *more)
       for stage in (1, 2, 3) for word, more in (
           ("", ()), ("_offload", ("--optimizer-offload", "1", *(("--parameter-offload", "1") if stage == 3 else ()))))},
    ("--offload", "none"): ("--optimizer-offload", "0"),
    **{("--offload", word): (option, "1") for option, words in {
        "--optimizer-offload": ("optimizer", "optim", "optimizer-states", "cpu"),
        "--parameter-offload": ("parameters", "params", "weights"), "--activation-offload": ("activations",),
    }.items() for word in words},
}  # fmt: skip
"""Options of other programs of which one value says what options here say, each with its value; none where it is so anyway."""
USUAL = {"--zero-stage", "--framework", ("--dtype", "bf16"), ("--adapter", "none"), ("--synchronisation", "all-reduce")}
"""What may be so without its switch, so that the switch turned off doesn't say what is."""
VALUED = (
    "--seq-len", "--gpus", "--nodes", "--device", "--micro-batch", "--global-batch", "--tensor-parallel", "--pipeline-parallel",
    "--context-parallel", "--expert-parallel", "--data-parallel", "--virtual-stages", "--zero-stage", "--framework", "--network",
    "--tokens-per-second", "--step-time", "--log", "--days", "--adapter", "--cluster", "--dtype", "--optimizer", "--recompute",
    "--price", "--find", "--mfu", "--tokens", "--algorithm", "--sequence-parallel", "--gradient-accumulation", "--attention",
    "--lora-rank", "--lora-targets", "--adapter-dropout", "--synchronisation", "--shard-group", "--overlap-gradients",
    "--overlap-parameters", "--overlap-tensor", "--schedule", "--top", "--steps", "--samples", "--sure", "--overhead",
    "--minibatch", "--epochs", "--budget",
)  # fmt: skip
"""Options whose other spellings (`MEANT`) take the same value."""
HIGHEST = ("--max-tp", "--max-pp", "--max-cp", "--max-ep")
"""Words of `MEANT` for a degree that a search shall not pass."""
OFFERED = ("--memory", "--vram", "--tflops", "--flops", "--format", "--dp-shard", "--data-parallel-shard-degree", "--cloud",
           "--startup", "--carbon-intensity", "--co2", "--tflops-per-gpu", "--resolution", "--image-size", *HIGHEST)
"""Words of `MEANT` that mean nearly the same as what they stand for, but not quite: they are offered, never taken."""
PROMPTS = ("--prompts", "--num-prompts", "--prompts-per-step")
GENERATIONS = ("--num-generations", "--generations", "--group-size", "--num-rollouts", "--rollouts-per-prompt",
               "--samples-per-prompt", "--n-samples-per-prompt", "--responses-per-prompt")  # fmt: skip
"""Options of which one says how many prompts a step of post-training has, the other how many samples each."""
OF_A_NODE = ("--gpus-per-node", "--nproc-per-node", "--devices-per-node")
"""GPUs of each node in the words of launchers, torchrun's among them."""
NODES_AND_THEIRS = ("--num-nodes", "--num-gpus")
"""Both in the words of DeepSpeed's launcher (deepspeedai/DeepSpeed@edaa722 deepspeed/launcher/runner.py); the second by itself,
or beside another word for nodes, are the GPUs of all nodes."""
SHARING = ("--sequence-parallel-size", "--sequence-parallel-degree", "--sp-size", "--sp-degree", "--ulysses", "--ulysses-size",
           "--ulysses-degree", "--ulysses-parallel", "--ulysses-parallel-size", "--ulysses-sequence-parallel-size")  # fmt: skip
"""Options of trainers that share a sequence among so many GPUs, by heads or in a ring."""
BATCHES = ("--batch-size", "--batch", "--bs")
"""Words for a step's sequences, or for a micro-batch's: such where they are fewer than the accumulation beside them."""
UNSURE = {
    **dict.fromkeys(BATCHES, "global_batch, of a step on all GPUs, or micro_batch, of one at once"),
    **dict.fromkeys(("--time", "--duration", "--within", "--deadline"), "days"),
    **dict.fromkeys(("--bandwidth", "--network-bandwidth", "--interconnect", "--inter-node-bandwidth", "--internode-bandwidth"),
                    "network, of a node's NICs together [bytes/s], or a text as '50 GB/s per GPU'"),
    "--min-throughput": "tokens and days, in which `costmodel gpus` has them trained",
    **dict.fromkeys(("--price-per-node-hour", "--node-price", "--instance-price", "--price-per-instance-hour"),
                    "price, of a GPU for an hour: a node's over its GPUs"),
    "--gpu-hours": "tokens, of which an answer tells them",
    "--cost": "price, of a GPU for an hour", "--throughput": "tokens_per_second, of all GPUs together",
    **dict.fromkeys(("--gpu-memory", "--max-memory", "--memory-limit"),
                    "a cluster of such GPUs: replace(load_cluster(...), {'device.memory': '60 GB'})"),
    "--num-layers-per-virtual-pipeline-stage": "virtual_stages: the layers of a pipeline rank over these",
    **dict.fromkeys((*PROMPTS, *GENERATIONS), "samples of a step: prompts times generations of each"),
    **dict.fromkeys(("--max-completion-length", "--response-length", "--max-response-length", "--completion-length",
                     "--max-new-tokens"), "seq_len, of the longest sample with its prompt"),
    **dict.fromkeys(SHARING, "context_parallel, of GPUs that share a sequence, with ulysses beside it where they exchange heads; "
                             "sequence_parallel is yes or no"),
    **dict.fromkeys(("--fsdp-sharding-strategy", "--sharding-strategy"),
                    "full_shard, shard_grad_op or no_shard; of others zero_stage, with shard_group ranks that share a copy"),
    "--workers": "gpus, or of a sweep its processes",
    **dict.fromkeys(("--recompute-method", "--recompute-num-layers"),
                    "recompute, the share of a stage's layers that a block is, as 0.25"),
    **dict.fromkeys(("--offload", "--cpu-offload"), "optimizer_offload, parameter_offload or activation_offload, each a share"),
}  # fmt: skip
"""Words that mean one thing to some people and another to others: taken where a note says as what, else refused."""
ELSEWHERE = {*FLAGS, *MEANT["option"], *(option for option, _ in BY_VALUE), *UNSURE}
"""Every option of another program that is known here."""
IN_TOKENS = ("--tokens-per-batch", "--batch-tokens", "--tokens-per-step", "--global-batch-tokens", "--batch-size-in-tokens")
"""Those whose value is the batch in tokens, not in sequences."""
WORDED = (
    "framework", "adapter", "dtype", "optimizer", "recompute", "attention", "schedule", "find", "synchronisation", "compression",
)  # fmt: skip
"""Arguments whose values `MEANT` knows by other names, too."""
NEARLY = ("int8", "8bit", "fp4", "float4", "mxfp4")
"""Values of `MEANT` that are offered, never taken."""


def value_meant(argument: str, value: object, known: Iterable[object] = ()) -> object:
    """What a value is called here, of arguments whose values people name otherwise; of several each; any other as it is.

    Parameters
    ----------
    argument : its name
    value : as it was given
    known : values that it may have, whose case and punctuation don't matter

    Examples
    --------
    >>> value_meant("dtype", "bfloat16"), value_meant("optimizer", ["adamw", "sgd"]), value_meant("dtype", "int8")
    ('bf16', ['adam', 'sgd'], 'int8')
    >>> value_meant("dtype", "BF16", ["bf16"]), value_meant("recompute", True)
    ('bf16', 'full')
    """
    if argument not in WORDED:
        return value
    if isinstance(value, list | tuple):
        return type(value)(value_meant(argument, one, known) for one in value)
    if isinstance(value, bool):
        return meant(argument, "yes" if value else "no") or value
    if not isinstance(value, str) or value.lower() in NEARLY:
        return value
    alike = (one for one in known if isinstance(one, str) and squeezed(one) == squeezed(value[:100]))
    return meant(argument, value) or next(alike, value)


def argument_meant(name: str, value: object) -> dict[str, object]:
    """An argument of a function by the names that it has here, each with its value; empty of a switch that is off.

    Parameters
    ----------
    name : as it was given, such as ``micro_batch_size`` or ``zero3``
    value : of it

    Raises
    ------
    InvalidValue
        for a name that means several things

    Examples
    --------
    >>> argument_meant("micro_batch_size", 2), argument_meant("zero3", True), argument_meant("lora", False)
    ({'micro_batch': 2}, {'zero_stage': 3}, {})
    >>> argument_meant("gradient_checkpointing", False), argument_meant("colour", "red")
    ({'recompute': 'none'}, {'colour': 'red'})
    """
    option = _option(name)
    if (said := said_by_value(option, value)) is not None:
        return _as_arguments(said)
    if option in UNSURE and not (option in SHARING and isinstance(value, bool)):
        raise InvalidValue(name, value, UNSURE[option])
    if option in IN_TOKENS:
        raise InvalidValue(name, value, "global_batch in its place, in sequences: these tokens over seq_len")
    if isinstance(value, bool) and option in FLAGS:
        return _as_arguments(FLAGS[option] if value else OFF.get(option, ()))
    if option not in MEANT["option"] and (shorter := without_size(option)) in (*VALUED, *MEANT["option"]):
        option = shorter
    other = MEANT["option"].get(option, option)
    if other.startswith("--set "):
        described, _, field = other.removeprefix("--set ").partition("=")[0].partition(".")
        raise InvalidValue(name, value, f"a description with it changed: replace(load_{described}(...), {{{field!r}: ...}})")
    taken = other in VALUED and option not in OFFERED and not isinstance(value, bool)
    found = argument_of(other) if taken else name
    return {found: value_meant(found, value)}


def all_meant(
    given: Mapping[str, object], meant: Callable[[str, object], Mapping[str, object]], before: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Arguments by the names that they have here, of which none is said twice, nor left open by a switch that is off.

    Parameters
    ----------
    given : values by the names under which they were given
    meant : from one of them to what it is by its names here
    before : what is said already, by its names here

    Raises
    ------
    InvalidValue
        for an argument that says otherwise what another one says, and for a switch that is off where nothing says what is so

    Examples
    --------
    >>> all_meant({"bf16": False, "fp16": True, "mbs": 2}, argument_meant)
    {'dtype': 'fp16', 'micro_batch': 2}
    """
    found = dict(before or {})
    by = {name: name for name in found}
    for said, value in given.items():
        for name, one in meant(said, value).items():
            if name in found and found[name] != one:
                other = f"{by[name]}={given.get(by[name], found[name])!r}"
                raise InvalidValue(said, value, f"nothing beside {other}, which says the same")
            found[name] = one
            by.setdefault(name, said)
    for said, value in given.items():
        if value is False and (field := left_open(said)) and field not in found:
            raise InvalidValue(said, value, f"{field} beside it, which says what is so instead")
    return found


def said_by_value(option: str, value: object) -> tuple[str, ...] | None:
    """Options, each with its value, that a value of another program's option says; None where it says none.

    Parameters
    ----------
    option : with its dashes, or as an argument
    value : of it; words behind the first say nothing, as in ``full_shard auto_wrap``
    """
    return BY_VALUE.get((_option(option), str(value).lower().partition(" ")[0]))


def is_said_by_value(option: str) -> bool:
    """Whether some value of another program's option says other options."""
    return any(_option(option) == one for one, _ in BY_VALUE)


def left_open(name: str) -> str:
    """The argument that must say what is so where a switch of another program is off; empty of what is so without it anyway.

    Parameters
    ----------
    name : of the switch, in Python or on the command line

    Examples
    --------
    >>> left_open("bf16"), left_open("lora"), left_open("gradient_checkpointing")
    ('dtype', '', '')
    """
    option = _option(name)
    said = FLAGS.get(option, ("", ""))
    return argument_of(said[0]) if option not in OFF and {said[0], said[:2]} & USUAL else ""


def without_size(option: str) -> str:
    """An option without the word that ends it elsewhere: ``--tensor-parallel-size`` is a degree.

    Parameters
    ----------
    option : with its dashes
    """
    return re.sub("-(size|degree)$", "", option)


def _as_arguments(said: Sequence[str]) -> dict[str, object]:
    """Options, each with its value, as arguments."""
    return {argument_of(one): int(word) if word.isdigit() else word for one, word in zip(said[::2], said[1::2], strict=True)}


def argument_of(option: str) -> str:
    """An option as an argument of a function.

    Parameters
    ----------
    option : with its dashes
    """
    return option.removeprefix("--").replace("-", "_")


def _option(name: str) -> str:
    return f"--{name.removeprefix('--').lower().replace('_', '-')}"
