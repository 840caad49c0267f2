"""Lightning Fabric: compress the model that `setup` returns, and save the session with it."""

import tempfile
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn

import actzip

torch.manual_seed(0)
fabric = Fabric(accelerator="cpu", devices=1)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = fabric.setup(model, optimizer)

session = actzip.apply_to_instance(model, method="actnn", optimizer=optimizer)

x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
for step in range(5):
    loss = nn.functional.cross_entropy(model(x), y)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}, {session.totals().ratio:.1f} times smaller")

with tempfile.TemporaryDirectory() as folder:
    state = {"model": model, "optimizer": optimizer, "actzip": session}
    fabric.save(Path(folder, "last.ckpt"), state)
    fabric.load(Path(folder, "last.ckpt"), state)  # a resumed run goes on bit for bit

print(session.report())
