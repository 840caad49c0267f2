"""A pretrained encoder that classifies texts, as transformers loads it; LoRA as PEFT adds it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from actzip.tasks.data.pretrained_files import require


class Pretrained(nn.Module):
    """Token ids (batch, length) to class logits, read from the mean over all tokens.

    `keep`, a bool tensor like the ids, is False at padding, which no token then attends to. The
    mean is what sentence encoders were trained with; their first token says less. With a rank
    `lora` the pretrained weights are frozen: every Linear gets two thin trained matrices
    beside it, and the head is trained whole.
    """

    def __init__(self, path: Path, classes: int, dropout: float = 0.1, lora: int = 0) -> None:
        super().__init__()
        require("transformers", *(("peft",) if lora else ()))
        from transformers import AutoModel
        from transformers.utils import logging

        level = logging.get_verbosity()
        bars = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()  # it warns that there is no pooler, which was asked for
        logging.disable_progress_bar()
        try:
            self.encoder = AutoModel.from_pretrained(
                path,
                local_files_only=True,
                add_pooling_layer=False,
                attn_implementation="eager",  # flash attention's bf16 backward is slow on a CPU
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
            )
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
        width: int = self.encoder.config.hidden_size
        if lora:
            self.encoder = _adapted(self.encoder, lora)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)
        self.train()  # transformers gives it in eval mode: no dropout, nothing recomputed

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        x = self.encoder(input_ids=ids, attention_mask=keep.long()).last_hidden_state
        kept = keep.unsqueeze(-1).to(x.dtype)
        mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1)
        logits: Tensor = self.head(self.dropout(mean))
        return logits

    def recompute(self) -> int:
        """Compute each layer again in backward; how many there are."""
        self.encoder.config.use_cache = False  # of no use in training, and it warns
        self.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        return int(self.encoder.config.num_hidden_layers)


def _adapted(model: nn.Module, rank: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    )
