"""Lossless gradients on randomly initialised architectures of the `transformers` library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor, nn

from training import assert_trains_the_same

SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
PICTURE: dict[str, Any] = {"image_size": 32, "num_channels": 3}


def _lm(model: Any) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    ids = torch.randint(3, 100, (2, 24))
    return model, lambda m: m(input_ids=ids, labels=ids).loss


def _label(model: Any, **inputs: Tensor) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    labels = torch.tensor([0, 1])
    return model, lambda m: m(**inputs, labels=labels).loss


def _text(model: Any) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    ids = torch.randint(3, 100, (2, 24))
    mask = torch.ones_like(ids)
    mask[1, 15:] = 0
    return _label(model, input_ids=ids, attention_mask=mask)


def _picture(model: Any) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    return _label(model, pixel_values=torch.randn(2, 3, 32, 32))


MODELS: dict[str, Callable[[], tuple[nn.Module, Callable[[Any], Tensor]]]] = {
    "bert": lambda: _text(t.BertForSequenceClassification(t.BertConfig(**SMALL))),
    "roberta": lambda: _text(
        t.RobertaForSequenceClassification(
            t.RobertaConfig(**SMALL, max_position_embeddings=64, pad_token_id=0)
        )
    ),
    "distilbert": lambda: _text(
        t.DistilBertForSequenceClassification(
            t.DistilBertConfig(vocab_size=100, dim=48, n_layers=2, n_heads=4, hidden_dim=96)
        )
    ),
    "gpt2": lambda: _lm(
        t.GPT2LMHeadModel(
            t.GPT2Config(
                vocab_size=100,
                n_embd=48,
                n_layer=2,
                n_head=4,
                n_positions=64,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    ),
    "llama": lambda: _lm(
        t.LlamaForCausalLM(t.LlamaConfig(**SMALL, num_key_value_heads=2, attention_dropout=0.1))
    ),
    "opt": lambda: _lm(
        t.OPTForCausalLM(
            t.OPTConfig(
                vocab_size=100,
                hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=96,
                word_embed_proj_dim=48,
            )
        )
    ),
    "t5": lambda: _lm(
        t.T5ForConditionalGeneration(
            t.T5Config(
                vocab_size=100,
                d_model=48,
                d_kv=12,
                d_ff=96,
                num_layers=2,
                num_heads=4,
                decoder_start_token_id=0,
            )
        )
    ),
    "vit": lambda: _picture(
        t.ViTForImageClassification(
            t.ViTConfig(**SMALL, **PICTURE, patch_size=8, hidden_dropout_prob=0.1)
        )
    ),
    "convnext": lambda: _picture(
        t.ConvNextForImageClassification(
            t.ConvNextConfig(depths=[1, 1], hidden_sizes=[16, 32], num_stages=2, drop_path_rate=0.1)
        )
    ),
    "resnet": lambda: _picture(
        t.ResNetForImageClassification(
            t.ResNetConfig(
                embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
            )
        )
    ),
    "mobilenet": lambda: _picture(
        t.MobileNetV2ForImageClassification(t.MobileNetV2Config(depth_multiplier=0.35))
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_lossless_trains_bit_for_bit(name: str) -> None:
    torch.manual_seed(0)
    model, loss = MODELS[name]()
    model.train()
    stats = assert_trains_the_same(model, loss, min_bytes=0)
    assert stats.ratio > 1.0 or name == "convnext"  # GELU and nothing dropped: all is needed
    assert not stats.unknown, f"no rule for {dict(stats.unknown)}"
