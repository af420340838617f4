"""The dialects, one file each."""

from costmodel.interop.launchers.dialects.accelerate import ACCELERATE
from costmodel.interop.launchers.dialects.axolotl import AXOLOTL
from costmodel.interop.launchers.dialects.colossalai import COLOSSALAI
from costmodel.interop.launchers.dialects.deepspeed import DEEPSPEED
from costmodel.interop.launchers.dialects.gpt_neox import GPT_NEOX
from costmodel.interop.launchers.dialects.huggingface import HUGGINGFACE
from costmodel.interop.launchers.dialects.llama_factory import LLAMA_FACTORY
from costmodel.interop.launchers.dialects.llm_foundry import LLM_FOUNDRY
from costmodel.interop.launchers.dialects.maxtext import MAXTEXT
from costmodel.interop.launchers.dialects.megatron import MEGATRON
from costmodel.interop.launchers.dialects.megatron_deepspeed import MEGATRON_DEEPSPEED
from costmodel.interop.launchers.dialects.ms_swift import MS_SWIFT
from costmodel.interop.launchers.dialects.nanotron import NANOTRON
from costmodel.interop.launchers.dialects.nemo import BRIDGE, NEMO
from costmodel.interop.launchers.dialects.openrlhf import OPENRLHF
from costmodel.interop.launchers.dialects.slime import SLIME
from costmodel.interop.launchers.dialects.torchtitan import TORCHTITAN
from costmodel.interop.launchers.dialects.torchtune import TORCHTUNE
from costmodel.interop.launchers.dialects.verl import VERL
from costmodel.interop.launchers.table import Dialect

DIALECTS: tuple[Dialect, ...] = (
    MEGATRON, MEGATRON_DEEPSPEED, NEMO, BRIDGE, DEEPSPEED, TORCHTITAN, ACCELERATE, HUGGINGFACE, LLAMA_FACTORY,
    AXOLOTL, MS_SWIFT, NANOTRON, LLM_FOUNDRY, TORCHTUNE, GPT_NEOX, COLOSSALAI, OPENRLHF, MAXTEXT, VERL, SLIME,
)  # fmt: skip
