"""actzip around any code, without a model: what does this attention step keep for backward?"""

import torch
import torch.nn.functional as F

import actzip

torch.manual_seed(0)
x = torch.randn(8, 128, 256)
weight = torch.randn(256, 768, requires_grad=True)

with actzip.compress(method="fixed") as session:
    q, k, v = (x @ weight).unflatten(-1, (3, 8, 32)).permute(2, 0, 3, 1, 4)
    loss = F.dropout(F.scaled_dot_product_attention(q, k, v), 0.1).square().mean()
loss.backward()

print(session.stats().ratio)
print(session.explain("Attention"))
