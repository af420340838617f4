"""Architectures that are known by name and not modelled, and by what they go beyond a Transformer."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "state-space layers (Mamba)": "mamba mamba2 falcon_mamba zamba zamba2 nemotron_h_omni plamo2 hymba "
    "codestral_mamba mamba_ssm phi4flash zaya",
    "linear attention": "qwen4_exp qwen4_exp_text bailing_moe_linear rwkv rwkv5 rwkv6 rwkv7 retnet "
    "gla lightning_attn",
    "recurrent layers": "recurrent_gemma xlstm hrm_text",
    "windows beside short convolutions": "lfm3 lfm3_vl",
    "long convolutions": "stripedhyena hyena",
    "encoder-decoder attention": "umt5 longt5 switch_transformers pegasus_x blenderbot "
    "blenderbot-small m2m_100 nllb-moe led fsmt prophetnet mvp bigbird_pegasus speech_to_text t5gemma t5gemma2 "
    "encoder-decoder vision-encoder-decoder speech-encoder-decoder florence2 trocr udop",
    "two towers that are trained beside each other": "clip siglip siglip2 chinese_clip altclip clipseg metaclip_2 xclip align "
    "blip blip-2 owlvit owlv2 groupvit vision-text-dual-encoder",
    "joint attention of images and texts in layers of several kinds": "PixArtTransformer2DModel "
    "Flux2Transformer2DModel HunyuanDiT2DModel WanTransformer3DModel HunyuanVideoTransformer3DModel "
    "QwenImageTransformer2DModel CogVideoXTransformer3DModel LTXVideoTransformer3DModel SanaTransformer2DModel",
    "convolutions": "UNet2DConditionModel UNet2DModel AutoencoderKL resnet convnext convnextv2 efficientnet mobilenet_v2 regnet",
    "cross-attention to images beside every few layers": "idefics flamingo",
    "compressed sparse attention and hyper-connections": "deepseek_v4 deepseek_ref",
    "hyper-connections": "hy_v4 hy_v4_vl hy_v4_vl_text glm5_next glm5_next_text",
    "latent attention of two widths": "dots3_note dots3_note_text mistral_large4 mistral_large4_text",
    "gates of latents and norms with products": "axk2",
    "short convolutions of keys, values and outputs": "inkling_mm_model inkling_text inkling2 inkling2_text inkling2_loop "
    "inkling2_loop_text",
    "experts of a narrower width than the hidden state": "muse_spark muse_spark_text",
    "layers that are run several times": "dory",
    "states beside windows": "lara_mini",
    "per-layer embeddings, AltUp and LAuReL": "gemma3n gemma3n_text",
    "two attentions a layer and experts without computation": "longcat_flash",
    "layers that share their weights": "albert",
    "queries of a low rank over one head of keys": "step3_text step3_vl",
    "disentangled attention": "deberta deberta-v2",
    "layers of different shapes": "nemotron-nas openelm",
    "sparse attention of a fixed pattern": "longformer big_bird reformer phi3small minimax_m3 minimax_m3_vl minimax_m3_vl_text",
    "two-stream attention": "xlnet transfo-xl",
    "a generator beside the encoder": "electra",
    "differential attention": "diffllama",
    "dynamic masks": "doge",
    "experts in the attention": "jetmoe",
}
"""What is not modelled: the `model_type`s that have it."""

REFUSED: dict[str, str] = {kind: reason for reason, kinds in REASONS.items() for kind in kinds.split()}
"""`model_type`: what of it is not modelled."""
