"""Accelerate with two processes: each compresses what its own share of the batch saves.

Runs as it stands; in a script of your own, `accelerate launch` starts the processes.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process; before torch is imported

import accelerate
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import actzip


def train() -> None:
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(256, 256), torch.randint(0, 10, (256,)))
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(data, 32))

    # after prepare(): the model is wrapped for data parallelism, and the optimizer as well
    session = actzip.apply_to_instance(model, method="actnn", optimizer=optimizer)
    accelerator.register_for_checkpointing(session)  # save_state() and load_state() have it too

    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    ratios = accelerator.gather(torch.tensor([session.totals().ratio]))
    if accelerator.is_main_process:
        print(f"{accelerator.num_processes} processes, compressed {ratios.tolist()} times")
        print(session.report())
    accelerator.end_training()


if __name__ == "__main__":
    accelerate.debug_launcher(train, num_processes=2)
