"""Run by torchrun in two processes: train, resume, and resume when one state is lost."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny_trainer import trainer, weights

import actzip
from actzip.integrations.transformers import ActzipCallback


def run(folder: Path, resume: Path | None = None) -> Any:
    made = trainer(
        folder,
        ActzipCallback("acgc"),
        per_device_train_batch_size=4,
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
    )
    assert made.args.world_size == 2
    made.train(resume_from_checkpoint=None if resume is None else str(resume))
    return made


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    whole = run(folder / "whole")
    checkpoint = folder / "whole" / "checkpoint-2"
    dist.barrier()
    assert {f.name for f in checkpoint.glob("actzip*")} == {
        "actzip_state_0.pt",
        "actzip_state_1.pt",
    }
    assert actzip.session_of(whole.model) is None
    assert whole.state.log_history[0]["actzip/ratio"] > 1
    rest = run(folder / "rest", checkpoint)
    assert torch.equal(weights(whole), weights(rest))
    dist.barrier()
    (checkpoint / "actzip_state_1.pt").unlink(missing_ok=True)
    dist.barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(folder / "lost", checkpoint)
    said = [str(w.message) for w in caught if issubclass(w.category, actzip.ActzipWarning)]
    assert any("actzip_state_1.pt" in each for each in said), said
    print(f"rank {dist.get_rank()} is done")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
