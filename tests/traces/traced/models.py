"""Models of whichever release of transformers is installed, with flash attention, which no package of a CPU has."""

from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel, modeling_utils

try:
    from transformers import AttentionInterface, AttentionMaskInterface
except ImportError:  # before 4.53
    AttentionInterface = AttentionMaskInterface = None


def flash(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
    """Flash attention, causal, with fewer heads of keys than of queries."""
    out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def older_flash(query, key, value, *_, **__):
    """The same as releases before 4.48 call the package of flash attention: heads behind tokens."""
    out, _ = flash(None, query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), None)
    return out


def made(config, dtype):
    """A model with flash attention, of whichever release of transformers is installed."""
    if AttentionInterface is None:
        PreTrainedModel._check_and_enable_flash_attn_2 = classmethod(lambda cls, config, *_, **__: config)
        config._attn_implementation = "flash_attention_2"
        model = AutoModelForCausalLM.from_config(config, torch_dtype=dtype, attn_implementation="flash_attention_2")
        if hasattr(modeling_utils, "ALL_ATTENTION_FUNCTIONS"):  # from 4.48 on
            modeling_utils.ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = flash
        else:
            home_of(model)._flash_attention_forward = older_flash
        return model
    AttentionInterface.register("causal", flash)
    AttentionMaskInterface.register("causal", lambda *_, **__: None)
    config._attn_implementation = "causal"
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def home_of(model):
    """The module of Python in which a model's class is written."""
    return __import__(type(model).__module__, fromlist=["apply_rotary_pos_emb"])
