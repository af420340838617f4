"""A trace as a plan: degrees, sharding, batch and software that a record shows, and the same record on other ranks."""

import json

import pytest

from costmodel import load_cluster
from costmodel.text.errors import NotModelled
from costmodel.text.units import MiB
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.pricing import price_trace
from costmodel.traces.recognition import recognise
from costmodel.traces.record import Trace

CLUSTER = load_cluster("dgx-h100", gpus=16)
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 1000, "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
PARAMETERS = 2 * 1000 * 512 + 4 * (4 * 512**2 + 3 * 512 * 1024 + 2 * 512) + 512


class Run:
    """Steps of a model over ranks, as so many micro-batches, with the exchanges of one kind of parallelism."""

    def __init__(self, rank=0, stands_for=range(16), passes=2, backward=2, elements=PARAMETERS, name="model.all", beside=0):
        self.builder = RoleBuilder(rank, stands_for)
        self.channel, self.passes, self.backward, self.beside = self.builder.stream("nccl"), passes, backward, beside
        self.builder.parameter(name, (elements,), "bfloat16")

    def exchange(self, op, phase, ranks, parameter="", peer=-1, nbytes=MiB):
        group = self.builder.group(ranks) if ranks else -1
        done = self.builder.transaction(op, nbytes, "bfloat16", group, peer=peer, stream=self.channel, parameter=parameter,
                                        phase=phase)  # fmt: skip
        self.builder.stream_wait(done)

    def product(self, phase):
        self.builder.kernel("aten.mm", [(64, 64)] * 2, ["bfloat16"] * 2, flop=2 * 64**3, phase=phase)

    def trace(self, forward=(), backward=(), after=(), **facts):
        return Trace(roles=(self.role(forward, backward, after),), world_size=16, facts={"model": json.dumps(CONFIG)} | facts)

    def role(self, forward=(), backward=(), after=()):
        for _ in range(2):
            for _ in range(self.passes):
                tokens = self.builder.storage_born(8 * 4 * 128, kind="input", shape=(4, 128), dtype="int64")
                self.builder.kernel("aten.embedding", phase="forward", module="model.embed_tokens")
                for one in forward:
                    self.exchange(one[0], "forward", *one[1:])
                self.product("forward")
                for _ in range(self.beside):
                    self.product("other")
                for one in backward:
                    self.exchange(one[0], "backward", *one[1:])
                for _ in range(self.backward):
                    self.product("backward")
                self.builder.storage_died(tokens)
            for one in after:
                self.exchange(one[0], "optimizer", *one[1:])
            self.builder.step_boundary()
        return self.builder.role()


ALL = range(16)


def test_fully_sharded_weights_are_gathered_in_both_passes():
    trace = Run().trace([("all-gather", ALL, "w")], [("all-gather", ALL, "w"), ("reduce-scatter", ALL, "w")])
    made = recognise(trace)
    plan = made.plan
    assert (plan.data_parallel, plan.tensor_parallel, plan.zero_stage, made.framework) == (16, 1, 3, "fsdp2")
    assert (plan.micro_batch, plan.seq_len, plan.global_batch, plan.recompute) == (4, 128, 4 * 2 * 16, "none")
    assert float(made.model.parameters) == PARAMETERS
    assert made.estimate(CLUSTER).step_time > 0.0
    better = made.better(CLUSTER)
    assert better.best.plan.global_batch == plan.global_batch


@pytest.mark.parametrize(
    ("after", "stage"),
    [((), 0), ((("all-gather", ALL, "w"),), 1)],
)
def test_states_that_are_sharded_are_gathered_after_the_update(after, stage):
    trace = Run().trace((), [("all-reduce", ALL, "w")], after, framework="deepspeed")
    made = recognise(trace)
    assert made.plan.zero_stage == stage and made.framework == "deepspeed"
    told = Run().trace((), [("all-reduce", ALL, "w")], after, zero_stage="2", framework="deepspeed")
    assert recognise(told).plan.zero_stage == 2


@pytest.mark.parametrize(
    ("facts", "forward", "backward", "name"),
    [
        ({}, (), (), "ddp"),  # on one GPU, or ranks that are strangers
        ({}, (), (("all-reduce", ALL, "w"),), "ddp"),
        ({"sharding": "ddp"}, (("broadcast", ALL),), (("all-reduce", ALL, "w"),), "ddp"),
        ({}, (("all-gather", ALL, "w"),), (("reduce-scatter", ALL, "w"),), "fsdp2"),
        ({"sharding": "fsdp1"}, (("all-gather", ALL, "w"),), (), "fsdp1"),
        ({"sharding": "fsdp1", "trainer": "transformers"}, (), (), "hf-fsdp"),
        ({"sharding": "ddp", "trainer": "transformers"}, (), (("all-reduce", ALL, "w"),), "hf-trainer"),
        ({"framework": "deepspeed"}, (), (("all-reduce", ALL, "w"),), "deepspeed"),
    ],
)
def test_a_trace_is_priced_and_seen_as_the_software_that_ran(facts, forward, backward, name):
    trace = Run().trace(forward, backward, **facts)
    assert recognise(trace).framework == name == price_trace(trace, CLUSTER).framework.name


def test_tensor_groups_exchange_activations_and_stages_send_them():
    tensor = Run().trace([("all-reduce", range(4))], [("all-reduce", range(4)), ("all-reduce", range(0, 16, 4), "w")])
    plan = recognise(tensor).plan
    assert (plan.tensor_parallel, plan.data_parallel, plan.sequence_parallel) == (4, 4, False)
    scattered = Run().trace([("all-gather", range(4)), ("reduce-scatter", range(4))], [("all-reduce", range(0, 16, 4), "w")])
    assert recognise(scattered).plan.sequence_parallel is True
    roles = []
    for stage in range(4):
        run = Run(4 * stage, range(4 * stage, 4 * stage + 4), elements=PARAMETERS // 4, name=f"model.{stage}")
        sends = [("send", None, "", 4 * stage + 4)] if stage < 3 else []
        receives = [("recv", None, "", 4 * stage - 4)] if stage else []
        roles.append(run.role([*receives, *sends], [("all-reduce", range(4 * stage, 4 * stage + 4), "w")]))
    staged = recognise(Trace(roles=tuple(roles), world_size=16, facts={"model": json.dumps(CONFIG)}))
    assert (staged.plan.pipeline_parallel, staged.plan.data_parallel) == (4, 4)


def test_what_is_recomputed_shows_in_the_backward_pass():
    assert recognise(Run(backward=3).trace()).plan.recompute == "full"
    assert recognise(Run(backward=2).trace()).plan.recompute == "none"


def test_recomputation_is_seen_in_layers_whose_last_product_and_head_are_not_done_again():
    """A layer of four products, of which PyTorch does three again, and a head as large as the layer."""
    run = Run(passes=1, backward=0)
    for _ in range(4):
        run.builder.kernel("aten.mm", [(64, 64)] * 2, ["bfloat16"] * 2, flop=2 * 64**3, phase="forward", module="layers.0.mlp")
        run.builder.kernel("aten.mm", [(64, 64)] * 2, ["bfloat16"] * 2, flop=2 * 64**3, phase="forward", module="lm_head")
    for place in range(4 * 2 + 3 + 4 * 2):
        module = "layers.0.mlp" if place < 11 else "lm_head"
        run.builder.kernel("aten.mm", [(64, 64)] * 2, ["bfloat16"] * 2, flop=2 * 64**3, phase="backward", module=module)
    run.builder.storage_born(8 * 4 * 128, kind="input", shape=(4, 128), dtype="int64")
    run.builder.step_boundary()
    trace = Trace(roles=(run.builder.role(),), world_size=16, facts={"model": json.dumps(CONFIG)})
    assert recognise(trace).plan.recompute == "full"


def test_a_model_that_runs_untrained_beside_is_no_forward_pass_and_is_named():
    seen = recognise(Run(backward=3, beside=1).trace())
    assert seen.plan.recompute == "full"
    assert any("such as a reference, has 1.0 times the FLOP" in note for note in seen.notes)
    assert not any("such as a reference" in note for note in recognise(Run(backward=3).trace()).notes)


def test_the_rank_of_adapters_in_flat_shards_is_that_of_their_products():
    run = Run(passes=1)
    run.builder.parameter("layers.0.q_proj.lora_A.default.weight", (4096,), "bfloat16")
    run.builder.kernel("aten.mm", [(512, 512), (512, 8)], ["bfloat16"] * 2, flop=2 * 512 * 512 * 8, phase="forward",
                       module="layers.0.q_proj.lora_A.default")  # fmt: skip
    assert recognise(run.trace()).plan.lora_rank == 8


def test_a_kind_of_model_that_nobody_describes_is_named_without_a_file():
    with pytest.raises(NotModelled, match="^the model of the code: model_type='nobody_s'"):
        recognise(Run().trace(model=json.dumps(CONFIG | {"model_type": "nobody_s"})))


def test_a_model_that_is_not_the_trace_s_is_refused():
    with pytest.raises(NotModelled, match="parameters"):
        recognise(Run(elements=2 * PARAMETERS).trace())
    trace = Run().trace()
    with pytest.raises(NotModelled, match=r"config\.json"):
        recognise(Trace(roles=trace.roles, world_size=16))
