"""Formulas against the equations and tables of the papers that they come from."""

import dataclasses
import inspect

import pytest

from costmodel import Plan, Transformer, estimate, ledger, load_cluster, load_framework
from costmodel.arithmetic.named_tuples import paths, replaced
from costmodel.formulas import training_step
from costmodel.formulas.network import collectives, communication, nccl
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers, Place, Software
from costmodel.formulas.transformer import activations, flops, memory, parameters
from tests.seeds import rows

MEGATRON = load_framework("megatron-lm-2021")
SEQUENCE, VOCABULARY = 2048, 51200
LADDER = [(24, 2304, 24), (32, 4096, 36), (96, 12288, 96), (128, 20480, 105), (160, 25600, 128)]  # heads, hidden, layers


def gpt(heads, hidden, layers):
    """A GPT as Megatron-LM trains it: 4h MLP, biases, LayerNorm, dropout, tied embeddings."""
    return Transformer(
        name="gpt", layers=layers, hidden=hidden, heads=heads, vocabulary=VOCABULARY, feed_forward=4 * hidden, gated=False,
        norm="layernorm", attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True,
        learned_positions=SEQUENCE, dropout=True,
    )  # fmt: skip


def called(formula, **known):
    """A formula's value, its arguments found by their names."""
    return formula(*(known[name] for name in inspect.signature(formula).parameters))


def exact(software):
    """Software without what calibration adds: factors are one, nothing waits."""
    ones = ("_quality", "_scale", "_overhead", "_latency", "_traffic")
    factors = {path: 1.0 for path in paths(Software) if path.endswith(ones)}
    zero = "host_collective_launch memory_backward_overhead memory_fragmentation network_crossing_launch network_filling"
    nothing = dict.fromkeys([*zero.split(), "network_node_filling"], 0.0)
    return replaced(software, factors | nothing)


QUIET = exact(MEGATRON.numbers())


def split(model, **fields):
    """Options and plan of Megatron-LM in 2022: 16-bit activations, separate attention kernels, dropout."""
    plan = Plan(**{"global_batch": 512, "seq_len": SEQUENCE, "attention": "fused-softmax", **fields})
    return plan.settings(MEGATRON), plan.numbers(MEGATRON, model.layers)


# Korthikanti et al. 2022, "Reducing activation recomputation": activations


@pytest.mark.parametrize("shape", LADDER)
@pytest.mark.parametrize("t", [1, 8])
@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_a_layer_saves_what_korthikanti_counts(shape, t, b, sequence_parallel, recompute):  # equations 1 to 4 and 6
    a, h, _ = shape
    model = gpt(*shape)
    settings, plan = split(
        model, tensor_parallel=t, micro_batch=b, sequence_parallel=sequence_parallel and t > 1, recompute=recompute
    )
    scores = 5 * a * SEQUENCE / h if recompute == "none" else 0
    each = 34 + scores if t == 1 else (34 + scores) / t if sequence_parallel else 10 + (24 + scores) / t
    assert activations.layer_activations(model.numbers(), settings, plan) == pytest.approx(SEQUENCE * b * h * each, rel=1e-12)


@pytest.mark.parametrize("shape", LADDER)
def test_a_recomputed_layer_keeps_two_bytes_for_each_element_of_its_input(shape):  # korthikanti2022, table 2
    model = gpt(*shape)
    settings, plan = split(model, tensor_parallel=8, sequence_parallel=False, micro_batch=2, recompute="full")
    assert activations.checkpoint(model.numbers(), settings, plan) == 2 * SEQUENCE * 2 * shape[1]
    one = activations.layer_activations(model.numbers(), settings, plan)
    known = {"model": model.numbers(), "settings": settings, "plan": plan, "software": QUIET}
    held = 12.0 * 3.0 * called(memory.layer_bytes, **known).kept
    assert held == pytest.approx(3 * 12 * 2 * SEQUENCE * 2 * shape[1], rel=1e-12)
    assert called(activations.backward_temporaries, **known) == pytest.approx(one, rel=1e-12)  # the layer at work, whole


@pytest.mark.parametrize("shape", [(24, 2304, 24), (96, 12288, 96), (160, 25600, 128)])
@pytest.mark.parametrize("p", [2, 8])
def test_the_first_stage_of_1f1b_holds_all_layers(shape, p):  # korthikanti2022, section 4.2.3
    a, h, layers = shape
    model = gpt(*shape)
    settings, plan = split(model, tensor_parallel=8, pipeline_parallel=p, sequence_parallel=True)
    held = schedules.in_flight(plan.schedule, float(p), 1.0, 512.0, 0.0)
    known = {"model": model.numbers(), "settings": settings, "plan": plan, "software": QUIET}
    stage = layers / p * held * called(memory.layer_bytes, **known).kept
    assert stage == pytest.approx(SEQUENCE * h * layers / 8 * (34 + 5 * a * SEQUENCE / h), rel=1e-12)


@pytest.mark.parametrize("p", [4, 8])
@pytest.mark.parametrize("v", [2, 3])
def test_interleaving_holds_more_by_p_minus_one_over_p_v(p, v):  # korthikanti2022, section 4.2.3
    plain = schedules.in_flight(schedules.ONE_F_ONE_B, float(p), 1.0, 512.0, 0.0)
    interleaved = schedules.in_flight(schedules.INTERLEAVED, float(p), float(v), 512.0, 0.0)
    assert interleaved / plain == pytest.approx(1 + (p - 1) / (p * v), rel=1e-12)


@pytest.mark.parametrize("shape", [(96, 12288, 96), (160, 25600, 128)])
@pytest.mark.parametrize("t", [1, 8])
@pytest.mark.parametrize("p", [1, 8])
def test_around_the_layers_lie_dropout_mask_last_norm_head_input_and_logits(shape, t, p):  # korthikanti2022, section 4.3
    _, h, layers = shape
    model = gpt(*shape)
    settings, plan = split(model, tensor_parallel=t, pipeline_parallel=p, sequence_parallel=t > 1)
    sbh = SEQUENCE * h
    alone = 1.0 if p == 1 else 0.0
    known = {"model": model.numbers(), "settings": settings, "plan": plan, "software": QUIET, "layers": float(layers // p)}
    place, kinds = Place(float(layers // p), 0.0, 0.0, 1.0, alone), memory.layer_kinds(model.numbers(), settings, plan, QUIET)
    held = called(memory.stage_contents, place=place, kinds=kinds, micro_batches=512.0, **known)
    bill = memory.stage_memory(held, settings, plan, load_cluster("selene").numbers(), QUIET, 512.0)
    inside = layers // p * float(p) * called(memory.layer_bytes, **known).kept
    extra = sbh * layers / t * (p / layers + (4 / layers * (1 + VOCABULARY / h) if p == 1 else 0.0))
    assert bill.activations + bill.logits - inside == pytest.approx(extra, rel=1e-9)


# FLOP


@pytest.mark.parametrize("shape", LADDER)
def test_model_flop_are_equation_7_of_korthikanti(shape):
    _, h, layers = shape
    numbers = gpt(*shape).numbers()
    counted = flops.model_flop_per_token(numbers, float(SEQUENCE), 0.0)
    published = 72 * layers * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (12 * h * layers))
    assert counted == pytest.approx(published, rel=1e-12)


def taken(shape, recompute):
    model = gpt(*shape)
    settings, plan = split(model, tensor_parallel=8, recompute=recompute, sequence_parallel=True, data_parallel=1)
    cluster = load_cluster("selene", gpus=8)
    return training_step.step(
        model.numbers(), settings, plan, cluster.numbers(), MEGATRON.numbers(), cluster.device.numbers("bf16")
    )  # fmt: skip


@pytest.mark.parametrize("shape", LADDER)
def test_full_recomputation_takes_equation_3_of_narayanan(shape):
    _, h, layers = shape
    published = 96 * 512 * SEQUENCE * layers * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (16 * layers * h))
    assert taken(shape, "full").hardware_flop == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize("shape", LADDER)
def test_selective_recomputation_repeats_the_forward_core_of_which_equation_8_of_korthikanti_counts_three(shape):
    # equation 8 adds 72 B L s h^2 s/(6h): forward and backward of the core, where only its forward is run again
    _, h, layers = shape
    none, selective = taken(shape, "none"), taken(shape, "selective")
    assert none.hardware_flop == none.model_flop
    added = 72 * 512 * SEQUENCE * layers * h**2 * SEQUENCE * (1 / (3 * h) - 1 / (6 * h))
    assert 3 * (selective.hardware_flop - selective.model_flop) == pytest.approx(added, rel=1e-9)


TABLE_5 = [
    ((64, 6144, 48), 4, 8, 1.10, 41.5), ((96, 12288, 96), 64, 64, 13.75, 51.4),
    ((128, 20480, 105), 280, 280, 37.83, 56.0), ((160, 25600, 128), 512, 512, 71.49, 56.3),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "batch", "gpus", "seconds", "mfu"), TABLE_5)
def test_model_flop_and_published_seconds_give_the_published_mfu(shape, batch, gpus, seconds, mfu):  # korthikanti2022
    flop = flops.model_flop_per_token(gpt(*shape).numbers(), float(SEQUENCE), 0.0) * SEQUENCE * batch
    assert 100 * flop / (seconds * gpus * 312e12) == pytest.approx(mfu, abs=0.25)


# Parameters


def test_the_megatron_ladder_has_the_parameters_of_equation_2():  # narayanan2021, table 1
    table = rows("megatron2021_table1.csv")
    assert len(table) == 10
    for row in table:
        h, layers = int(row["hidden"]), int(row["layers"])
        model = gpt(int(row["heads"]), h, layers)
        assert model.parameters == pytest.approx(1e9 * float(row["params_eq2_B"]), rel=0.01)
        equation = 12 * layers * h**2 * (1 + 13 / (12 * h) + (VOCABULARY + SEQUENCE) / (12 * layers * h))
        assert model.parameters == pytest.approx(equation, rel=1e-5)  # all but the last norm


# Rajbhandari et al. 2020, "ZeRO", tables 1 and 2: 16-bit weights and gradients, 12 bytes of Adam

STAGES = {"baseline": 0, "Pos": 1, "Pos+g": 2, "Pos+g+p": 3}
SIZES = {"B": 1e9, "T": 1e12}


def bytes_per_parameter(stage, ranks):
    """State bytes of a rank over the parameters of the whole model."""
    model = gpt(32, 4096, 36)
    framework = load_framework("deepspeed")
    plan = Plan(
        global_batch=ranks, seq_len=SEQUENCE, data_parallel=ranks, zero_stage=stage, gradient_bytes=2, optimizer="adam"
    )
    weights, gradients, optimizer, _ = called(
        memory.states, model=model.numbers(), settings=plan.settings(framework),
        plan=plan.numbers(framework, model.layers), software=QUIET, place=Place(float(model.layers), 0.0, 0.0, 1.0, 1.0),
        at_once=0.0,
    )  # fmt: skip
    return (weights + gradients + optimizer) / parameters.total_parameters(model.numbers())


def printed(text):
    """A printed number and the worth of its last digit."""
    digits = text.rstrip("BT")
    scale = SIZES.get(text[-1], 1.0)
    return float(digits) * scale, 10.0 ** -len(digits.partition(".")[2]) * scale


def test_states_are_those_of_every_cell_of_zero_table_1():
    cells = [row for row in rows("zero_tables.csv") if row["item"] == "memory per device"]
    assert len(cells) == 54
    for cell in cells:
        size, _ = printed(cell["model/gpus"])
        value, digit = printed(cell["value"])
        held = bytes_per_parameter(STAGES[cell["stage"]], int(cell["Nd"])) * size / 1e9
        assert abs(held - value) < digit, cell  # the paper rounds some cells and truncates others


def test_the_largest_models_are_those_of_zero_table_2():
    cells = [row for row in rows("zero_tables.csv") if row["item"].startswith("max model size") and row["stage"] in STAGES]
    assert len(cells) == 20
    for cell in cells:
        value, digit = printed(cell["value"])
        largest = int(cell["MP"]) * 32e9 / bytes_per_parameter(STAGES[cell["stage"]], int(cell["Nd"]))
        assert abs(largest - value) <= max(0.01 * value, 0.5 * digit), cell


@pytest.mark.parametrize(("stage", "volumes"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_zero_sends_two_volumes_of_the_parameters_and_three_at_stage_3(stage, volumes):  # rajbhandari2020, section 7
    # as the paper has it; DeepSpeed itself all-reduces gradients below stage 3, a volume more
    framework = dataclasses.replace(load_framework("deepspeed"), buckets="one")
    plan = Plan(global_batch=64, seq_len=SEQUENCE, data_parallel=64, zero_stage=stage, gradient_bytes=2)
    model = gpt(96, 12288, 96)
    found = estimate(model, load_cluster("dgx-h100", gpus=64), plan, framework)
    assert found.step.exchange_bytes == pytest.approx(volumes * 2 * model.parameters * 63 / 64, rel=1e-12)


# Pipelines


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 32), (16, 64)])
def test_bubbles_of_gpipe_and_1f1b_are_p_minus_one_over_m_of_the_ideal_step(p, m):  # huang2019; narayanan2021, section 2.2
    for schedule in (schedules.GPIPE, schedules.ONE_F_ONE_B):
        idle = schedules.bubble(schedule, float(p), 1.0, 1.0, 1.0, 1.0)
        assert idle / (3.0 * m) == pytest.approx((p - 1) / m, rel=1e-12)
        assert idle / (3.0 * m + idle) == pytest.approx((p - 1) / (m + p - 1), rel=1e-12)


@pytest.mark.parametrize("v", [2, 4])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(v):  # narayanan2021, section 2.2
    plain = schedules.bubble(schedules.ONE_F_ONE_B, 8.0, 1.0, 1.0, 0.9, 1.1)
    assert schedules.bubble(schedules.INTERLEAVED, 8.0, float(v), 1.0, 0.9, 1.1) == pytest.approx(plain / v, rel=1e-12)


def test_zero_bubble_schedules_idle_for_weight_passes_less():  # qi2023, table 1
    f, b, w = 1.1, 1.0, 0.8
    assert schedules.bubble(schedules.ZB_H1, 8.0, 1.0, f, b, w) == pytest.approx(7 * (f + b - w), rel=1e-12)
    assert schedules.bubble(schedules.ZB_H2, 8.0, 1.0, f, b, w) == pytest.approx(7 * (f + b - 2 * w), rel=1e-12)
    assert schedules.bubble(schedules.ZB_H2, 8.0, 1.0, 1.0, 1.0, 1.0) == 0.0
    assert schedules.bubble(schedules.ZB_H2, 8.0, 1.0, 1.0, 1.0, 1.5) == 0.0


def test_bubble_rates_lie_just_below_those_that_zero_bubble_measures_with_communication():  # qi2023, table 5
    measured = {"bubble_1F1B": schedules.ONE_F_ONE_B, "bubble_ZB-H1": schedules.ZB_H1, "bubble_ZB-H2": schedules.ZB_H2}
    table = rows("zerobubble_tables.csv")
    assert len(table) == 12
    for row in table:
        times = [float(row[name]) for name in ("TF_ms", "TB_ms", "TW_ms")]
        for column, schedule in measured.items():
            idle = schedules.bubble(schedule, float(row["stages_p"]), 1.0, *times)
            rate = idle / (idle + float(row["microbatches_m"]) * sum(times))
            assert 0.0 <= float(row[column]) - rate <= 0.03, (row, column)


def test_dualpipe_idles_as_deepseek_counts():  # deepseek2024v3, table 2, with its B = data + weight, F&B = F + B
    f, data, w, p = 1.2, 1.2, 0.7, 16.0  # forward and backward by data equal, for which the table's form is exact
    backward = data + w
    published = (p / 2 - 1) * ((f + backward) + backward - 3 * w)
    assert schedules.bubble(schedules.DUALPIPE, p, 1.0, f, data, w) == pytest.approx(published, rel=1e-12)
    assert schedules.weight_copies(schedules.DUALPIPE) == 2.0
    assert schedules.in_flight(schedules.DUALPIPE, p, 1.0, 64.0, 0.0) == p + 1


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 64])
def test_stages_hold_as_many_micro_batches_as_published(p, m):
    for r in range(p):
        def held(schedule, v=1.0, r=r):
            return schedules.in_flight(schedule, float(p), v, float(m), float(r))

        assert held(schedules.GPIPE) == m  # huang2019
        assert held(schedules.ONE_F_ONE_B) == min(m, p - r)  # narayanan2021, section 2.2.1
        assert held(schedules.ZB_H1) == min(m, p)  # qi2023, table 1
        if r == 0:
            assert held(schedules.ZB_H2) == min(m, 2 * p - 1)
            chunks = min(m * 2, (p + 1) + (p - 2) + p)  # warm-up of megatron-core's schedules.py, and one at work
            assert held(schedules.INTERLEAVED, 2.0) == chunks / 2


SHORT = [(96, 8, 1, (12, 12, 12)), (126, 16, 1, (7, 8, 7)), (31, 4, 1, (8, 8, 7))]


@pytest.mark.parametrize(("layers", "p", "v", "wanted"), SHORT)
def test_short_stages_are_the_last_then_the_first(layers, p, v, wanted):  # grattafiori2024, section 3.3.2
    model = gpt(24, 2304, layers)
    settings, plan = split(model, pipeline_parallel=p, virtual_stages=v)
    known = {"layers": float(layers), "stages": float(p), "virtual_stages": float(v)}
    assert called(layout.stage_layers, model=model.numbers(), settings=settings, plan=plan, **known) == wanted


# Collectives


def flat(gpus, bandwidth=100e9, latency=0.0):
    """A network of one level."""
    level = LevelNumbers(float(gpus), latency, bandwidth)
    return NetworkNumbers(level, level, level)


@pytest.mark.parametrize("p", [2, 3, 8, 64])
@pytest.mark.parametrize("n", [1.0, 1e6, 1e10])
def test_an_all_reduce_moves_the_least_that_any_can(p, n):  # patarasuk2009, theorem 1
    took = collectives.all_reduce(n, float(p), 1.0, flat(64), QUIET)
    assert took == pytest.approx(2 * (p - 1) / p * n / 100e9, rel=1e-12)
    halves = collectives.all_gather(n, float(p), 1.0, flat(64), QUIET)  # reduce-scatter, then all-gather
    assert took == pytest.approx(2 * halves, rel=1e-12)


def test_a_rings_latency_grows_with_its_ranks_and_a_trees_with_their_logarithm():  # NVIDIA/nccl src/graph/tuning.cc
    node, net = LevelNumbers(1.0, 0.0, 1e15), LevelNumbers(4096.0, 1e-5, 1e15)
    network = NetworkNumbers(node, net, net)
    links = [collectives.group_links(float(p), 1.0, network, QUIET) for p in (64, 128)]
    assert [one.simple.latency for one in links] == pytest.approx([63e-5, 127e-5])
    assert [one.tree.latency for one in links] == pytest.approx([6e-5, 7e-5])


@pytest.mark.parametrize("ranks", [1.0])
def test_alone_there_is_nothing_to_exchange(ranks):
    for collective in (collectives.all_reduce, collectives.all_gather, collectives.all_to_all, collectives.send):
        assert collective(1e9, ranks, 1.0, flat(8, latency=1e-5), MEGATRON.numbers()) == 0.0


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallelism_takes_four_all_reduces_a_layer(t, b, sequence_parallel):
    # shoeybi2019, section 3; narayanan2021, section 3.2: 8 b s h (t - 1) / t elements; korthikanti2022, section 4.2.2:
    # as many bytes under sequence parallelism, but for the inputs that are gathered again for the gradients of weights: of two
    # products of a layer, and of the head
    shape = (96, 12288, 96)
    model = gpt(*shape)
    settings, plan = split(model, tensor_parallel=t, micro_batch=b, sequence_parallel=sequence_parallel)
    network = flat(8)
    moved = communication.layer_exchange(model.numbers(), settings, plan, network, QUIET)
    asked = Plan(global_batch=b, seq_len=SEQUENCE, micro_batch=b, tensor_parallel=t, sequence_parallel=sequence_parallel)
    made = ledger(model, load_cluster("dgx-h100", gpus=t), asked)
    sent = sum(row.count * row.sent for row in made.of() if row.phase != "gradient sync")
    one_way = 2 * b * SEQUENCE * 12288 * (t - 1) / t
    again = sequence_parallel * (2 * 96 + 1)
    # the embedding's and the head's are one more each
    assert sent == pytest.approx((8 * (96 + 0.5) + again) * one_way, rel=1e-12)
    one = collectives.all_reduce(2.0 * b * SEQUENCE * 12288, float(t), 1.0, network, QUIET)
    assert moved.tensor_forward + moved.tensor_backward == pytest.approx(4 * one, rel=1e-12)


def test_a_stage_boundary_carries_b_s_h_elements():  # narayanan2021, section 3.2
    model = gpt(96, 12288, 96)
    settings, plan = split(model, pipeline_parallel=8, micro_batch=2, sequence_parallel=False)
    _, nbytes = communication.boundary(model.numbers(), settings, plan, flat(64), QUIET)
    assert nbytes == 2 * 2 * SEQUENCE * 12288


def test_logarithms_of_ranks_are_exact_for_powers_of_two():
    for k in range(1, 15):
        assert nccl.levels_of(2.0**k) == k
        assert nccl.levels_of(2.0**k - 0.5) == k - 1
