"""Multimodal files: where their text tower is, and what it is a model of."""

from __future__ import annotations

from costmodel.description.huggingface.keys import words

TEXT_TABLES = "text_config language_config llm_config thinker_config text_model_config"
"""Where a multimodal file keeps its text tower."""

TOWERS = words(
    """
    vision_config audio_config visual vision_tower vision_model speech_config video_config projector_config tts_config
    vision_lora speech_lora audio_processor img_processor embd_layer talker_config token2wav_config vit_config
    mm_vision_tower vision_backbone_config sound_config
    """
)
"""Towers beside it, which are left out."""

_OF = {
    "llama": "llava llava_next vipllava video_llava llava_llama deepseek_vl smolvlm idefics3 voxtral",
    "mistral": "mistral3 llava_mistral",
    "qwen2": "qwen2_vl qwen2_5_vl qwen2_vl_text qwen2_5_vl_text qwen2_5_omni qwen2_5_omni_text qwen2_audio internvl llava_qwen "
    "llava_onevision",
    "qwen3": "qwen3_vl qwen3_vl_text",
    "qwen3_moe": "qwen3_vl_moe qwen3_vl_moe_text qwen3_omni_moe_text qwen3_omni_moe_thinker",
    "gemma": "paligemma",
    "gemma2": "gemma2_text",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "gemma4_unified_text": "gemma4_unified",
    "llama4_text": "llama4",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "phi3": "phi3_v phi4mm phi4_multimodal",
    "glm4_moe": "glm4v_moe_text",
    "cohere2": "cohere2_vision aya_vision",
    "exaone4": "exaone4_5",
    "ernie4_5_moe": "ernie4_5_vl_moe_text",
    "deepseek_v2": "deepseek_vl_v2",
    "deepseek_v3": "kimi_k25 kimi_vl",
    "mllama_text_model": "mllama",
    "step3p5": "step3p7 step3p7_text",
    "hunyuan_v1_dense": "hunyuan_vl hunyuan_vl_text",
    "granite": "granite_docling granite_docling_text granite4_vision granite4_vision_text",
    "apertus": "apertus1p5 apertus1p5_text",
    "glm4": "glm4v_text",
    "glm_ocr_text": "glm_ocr",
    "molmo2_text": "molmo2",
    "arcee": "cosmos3_edge cosmos3_edge_text",
    "muse_glimmer_text": "muse_glimmer",
    "aria_text": "aria",
}
TEXT_KINDS = {name: kind for kind, names in _OF.items() for name in names.split()}
"""Names of multimodal models and of their text towers: the `model_type` of the text model."""
