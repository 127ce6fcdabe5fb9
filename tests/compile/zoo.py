"""Small models of many architectures: transformers' from a config with random weights, and our own.

Each is tiny (one or two layers, some tens of features) and has no dropout, so that a training step
gives the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from tests.compile.zoo_modules import LstmTagger, ResNet, UNet

Inputs = dict[str, Any]

VOCABULARY = 61
BATCH = 2
LENGTH = 7


@dataclass(frozen=True)
class Entry:
    """A model and inputs for it; ``generates`` what ``generate()`` continues, for models that can."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    prompt: Callable[[], Inputs] | None = None

    def model(self) -> nn.Module:
        """The model on the CPU, with the same weights each time."""
        torch.manual_seed(0)
        model = self.build()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    # Biases begin as zeros and norms as ones, which would hide what they do.
                    parameter.add_(torch.randn(parameter.shape) * 0.1)
        return model

    def sample(self) -> Inputs:
        """The inputs on the CPU, the same each time."""
        torch.manual_seed(1)
        return self.inputs()

    def start(self) -> Inputs:
        """What to generate from."""
        assert self.prompt is not None
        torch.manual_seed(2)
        return self.prompt()


def to(device: str, inputs: Inputs) -> Inputs:
    """``inputs`` with their tensors on ``device``."""
    return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in inputs.items()}


def tokens(length: int = LENGTH) -> Tensor:
    """Random token ids (batch, length); 0 to 2 are left for padding, start and end."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def padded(side: str) -> Tensor:
    """An attention mask (batch, length) with two padded places in the second row."""
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, slice(None, 2) if side == "left" else slice(-2, None)] = 0
    return mask


def language(side: str = "right") -> Inputs:
    """A step of training a language model."""
    ids = tokens()
    return {"input_ids": ids, "attention_mask": padded(side), "labels": ids}


def unmasked() -> Inputs:
    """The same without padding."""
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def prompt() -> Inputs:
    """Left-padded prompts."""
    return {"input_ids": tokens(), "attention_mask": padded("left")}


def unrouted() -> Inputs:
    """A prompt for experts: transformers' loss for their balance does not know a static cache's masks."""
    return {**prompt(), "output_router_logits": False}


# What the language models have in common.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def bert() -> nn.Module:
    config = hf.BertConfig(
        **SIZES,
        pad_token_id=0,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return hf.BertForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=0.2,
        **SPECIAL,
    )
    return hf.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, **SPECIAL, num_key_value_heads=2))


def qwen3() -> nn.Module:
    return hf.Qwen3ForCausalLM(
        hf.Qwen3Config(**SIZES, **SPECIAL, num_key_value_heads=2, head_dim=8)
    )


def qwen3_moe() -> nn.Module:
    config = hf.Qwen3MoeConfig(
        **SIZES,
        **SPECIAL,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        output_router_logits=True,
    )
    return hf.Qwen3MoeForCausalLM(config)


def deepseek_v3() -> nn.Module:
    config = hf.DeepseekV3Config(
        **SIZES,
        **SPECIAL,
        num_key_value_heads=4,
        moe_intermediate_size=16,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        rope_interleave=True,
    )
    return hf.DeepseekV3ForCausalLM(config)


def t5() -> nn.Module:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=1,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=0,
        eos_token_id=None,
        decoder_start_token_id=0,
    )
    return hf.T5ForConditionalGeneration(config)


def vit() -> nn.Module:
    config = hf.ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        num_labels=3,
    )
    return hf.ViTForImageClassification(config)


def clip() -> nn.Module:
    shared = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "projection_dim": 24,
        "attention_dropout": 0.0,
    }
    text = {
        **shared,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 16,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": VOCABULARY - 1,
    }
    config = hf.CLIPConfig(
        text_config=text,
        vision_config={**shared, "image_size": 16, "patch_size": 4},
        projection_dim=24,
    )
    return hf.CLIPModel(config)


def whisper() -> nn.Module:
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=12,
        max_target_positions=32,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=0.2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **SPECIAL,
    )
    return hf.WhisperForConditionalGeneration(config)


def mamba() -> nn.Module:
    config = hf.MambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
        time_step_rank=4,
        initializer_range=0.2,
        **SPECIAL,
    )
    return hf.MambaForCausalLM(config)


def classified(inputs: Callable[[], Inputs]) -> Callable[[], Inputs]:
    """``inputs`` with a class for each row."""
    return lambda: {**inputs(), "labels": torch.tensor([0, 2])}


def pictures(size: int = 16) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def sequences() -> Inputs:
    return {"input_ids": tokens(), "attention_mask": padded("right")}


def captioned() -> Inputs:
    ids = tokens()
    ids[:, -1] = VOCABULARY - 1
    return {
        "input_ids": ids,
        "attention_mask": padded("right"),
        "pixel_values": pictures(),
        "return_loss": True,
    }


def translated() -> Inputs:
    return {"input_ids": tokens(), "attention_mask": padded("right"), "labels": tokens(5)}


def speech() -> Inputs:
    return {"input_features": torch.randn(BATCH, 8, 24)}


def spoken() -> Inputs:
    return {**speech(), "labels": tokens(5)}


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("bert", bert, classified(sequences)),
        Entry("gpt2", gpt2, language, prompt),
        Entry("llama", llama, language, prompt),
        Entry("qwen3", qwen3, language, prompt),
        Entry("qwen3_moe", qwen3_moe, language, unrouted),
        Entry("t5", t5, translated, sequences),
        Entry("vit", vit, classified(lambda: {"pixel_values": pictures()})),
        Entry("clip", clip, captioned),
        Entry("whisper", whisper, spoken, speech),
        Entry("mamba", mamba, unmasked, prompt),
        Entry("deepseek_v3", deepseek_v3, language, prompt),
        Entry("resnet", ResNet, lambda: {"images": pictures(), "labels": torch.tensor([1, 3])}),
        Entry("unet", UNet, lambda: {"images": pictures(), "times": torch.tensor([3.0, 40.0])}),
        Entry("lstm", LstmTagger, lambda: {"ids": tokens(), "labels": tokens() % 5}),
    )
}
