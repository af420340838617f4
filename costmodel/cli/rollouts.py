"""`costmodel post-train`: where a step of reinforcement learning, or of preferences, spends its time."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.cli.arguments import Commands, add_output, number, seconds, whole
from costmodel.cli.defaults import as_note
from costmodel.cli.output import TerminalTable, gib, judged, plan_heading, respond, share, table
from costmodel.cli.question import USAGE, add_question
from costmodel.cli.training import asked_plans
from costmodel.text.errors import InvalidValue
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate
    from costmodel.training.rollouts import PostTraining

MOST_PLANS = 100
"""Among which one is looked for that has room for other models beside the policy."""


def add(commands: Commands) -> None:
    """Add the command."""
    usage = (USAGE % "post-train").replace("[options]", "[--samples N --mean-length X] [options]")
    parser = commands.add_parser(
        "post-train", usage=usage, help="a step of GRPO, PPO, RLOO, DPO or KTO: generation, passes, updates, new weights",
        examples=(
            "costmodel post-train llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 512 --seq-len 4096 --samples 2048 "
            "--mean-length 1060",
            "costmodel post-train qwen3-32b --cluster dgx-h100 --gpus 32 --tensor-parallel 4 --pipeline-parallel 4 "
            "--global-batch 512 --seq-len 4096 --samples 2048 --mean-length 3200 --generation-gpus 32 "
            "--generation-tensor-parallel 4 --off-policy",
            "costmodel post-train llama3-8b --cluster dgx-h100 --global-batch 128 --seq-len 4096 --algorithm dpo --samples 128 "
            "--mean-length 800",
        ),
    )  # fmt: skip
    add_question(parser, several=False, without=("batching", "mean_length"))
    group = parser.add_argument_group(
        "the step", "--global-batch is of one update, in sequences; --seq-len is the longest sample's"
    )
    group.add_argument("--algorithm", default="grpo", metavar="A", help="grpo, ppo, rloo, dpo or kto (default: grpo)")
    group.add_argument("--samples", type=whole, metavar="N",
                       help="of a step, over all prompts; pairs of dpo (default: those of one update)")
    group.add_argument("--mean-length", type=number, metavar="X", dest="sample_length",
                       help="tokens of a sample, its prompt included (default: a quarter of --seq-len)")  # fmt: skip
    group.add_argument("--prompt-length", type=number, default=0.0, metavar="X", help="of them, given (default: 0)")
    group.add_argument("--epochs", type=whole, default=1, metavar="N", help="updates over the same samples (default: 1)")
    group.add_argument("--reward-time", type=seconds, default=0.0, metavar="S", help="seconds of a reward that is waited for")
    group.add_argument("--reward-model", metavar="MODEL", help="that scores samples in a forward pass where the policy trains")
    group.add_argument("--padded", action="store_true", help="each sample fills a sequence, where they would be packed")
    made = parser.add_argument_group("who generates")
    made.add_argument("--generation-gpus", type=whole, metavar="N", help="of their own (default: those that train take turns)")
    made.add_argument("--generation-tensor-parallel", type=whole, metavar="N", help="GPUs of a copy (default: the fewest)")
    made.add_argument("--generation-rate", type=number, metavar="X", help="tokens/s of a GPU, measured (default: a closed form)")
    made.add_argument("--off-policy", action="store_true", help="answers may be one step old: generation runs beside training")
    made.add_argument("--keep-states", action="store_true", help="training's states stay on the GPUs that generate in turn")
    add_output(parser)
    parser.set_defaults(run=_run)


def _fill_samples(arguments: argparse.Namespace) -> str:
    """Give a step the samples that aren't said: as many as one update takes, of a quarter of the longest."""
    from costmodel.training.rollouts import SHORTER

    taken = []
    if arguments.samples is None:
        arguments.samples = arguments.global_batch
        taken.append(f"--samples {arguments.samples}")
    if arguments.sample_length is None:
        arguments.sample_length = arguments.seq_len / SHORTER
        taken.append(f"--mean-length {arguments.sample_length:g}")
    return f"Taken, as it wasn't said: {', '.join(taken)}" if taken else ""


def _run(arguments: argparse.Namespace) -> int:
    from costmodel.training.rollouts import Rollouts, post_training

    plans = asked_plans(arguments, MOST_PLANS)
    arguments.notes += as_note(_fill_samples(arguments))
    cluster, gpus = plans[0].cluster, arguments.generation_gpus
    if gpus is not None and gpus < 1:
        raise InvalidValue("generation_gpus", gpus, "1 or more")
    rollouts = Rollouts(
        samples=arguments.samples, mean_length=arguments.sample_length, prompt_length=arguments.prompt_length,
        tensor_parallel=arguments.generation_tensor_parallel, tokens_per_second=arguments.generation_rate,
        cluster=None if gpus is None else cluster.with_gpus(gpus),
    )  # fmt: skip
    reward_model = None if arguments.reward_model is None else loader.load_model(arguments.reward_model)

    def step_of(asked: Estimate) -> PostTraining:
        return post_training(
            asked.model, asked.cluster, asked.plan, rollouts, algorithm=arguments.algorithm, framework=asked.framework,
            epochs=arguments.epochs, off_policy=arguments.off_policy, packed=not arguments.padded,
            offload_states=not arguments.keep_states, reward_time=arguments.reward_time, reward_model=reward_model,
            fit_probability=asked.required_probability,
        )  # fmt: skip

    first = step_of(plans[0])  # of those that fit by themselves the fastest with room for what is held beside
    step = first if first.fits else next((one for one in map(step_of, plans[1:]) if one.fits), first)
    return respond(arguments, lambda: {**step.update.to_dict(), **step.to_dict()}, lambda: _page(step, arguments), step.fits)


def _page(step: PostTraining, asked: argparse.Namespace) -> list[TerminalTable | str]:
    from costmodel.training.rollouts import UNCOUNTED

    low, high = step.time_interval
    total = sum(step.times.values())
    made = step.generation
    shared = "each padded to the longest" if asked.padded else "packed, none is padded (--padded)"
    lines = [f"Samples: {asked.sample_length:,g} tokens on average, {asked.seq_len:,} the longest; {shared}",
             f"Updates: {judged(step.update)}"]  # fmt: skip
    if step.beside:
        of = f"{gib(step.memory)} of {gib(step.update.memory_limit)} GiB{'' if step.fits else '; DOES NOT FIT'}"
        lines.append(f"With {gib(step.beside)} GiB of other models beside: {of}")
    if made is not None:
        lines.append(
            f"Generation: TP{made.tensor_parallel}, {gib(made.memory)} GiB a GPU, {min(made.at_once, 1e9):,.0f} sequences at "
            f"once, {made.tokens_per_second:,.0f} tokens/s decoded by each of {counted(made.gpus, 'GPU')}"
            + ("" if made.fits else "; DOES NOT FIT")
        )
        lines.append(
            f"Published steps took {math.exp(UNCOUNTED):.2g} times what is counted here: waiting for the slowest, conversion of "
            "weights, the loop around; the interval has it"
        )
    lines.append(f"Why: {step.why}")
    return [
        f"{plan_heading(step.update)}\n"
        f"A step of {step.algorithm}: {format_seconds(step.step_time)}, 90 % from {format_seconds(low)} to "
        f"{format_seconds(high)}; {step.tokens_per_second_per_gpu:,.0f} tokens/s a GPU of {counted(step.gpus, 'GPU')}",
        table(["part", "time", "share"], [[name, format_seconds(time), share(time, total)] for name, time in step.times.items()]),
        "\n".join(lines),
    ]
