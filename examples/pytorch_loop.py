"""A plain PyTorch loop: train a small network on photos, and know recall@1 with its interval after each epoch.

pip install 'recallatk[torchmetrics]'
python examples/pytorch_loop.py
"""

from __future__ import annotations

import torch
from photos import load_photos
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from recallatk.integrations.torchmetrics import RecallAtK


def to_dataset(photos):
    return TensorDataset(
        torch.from_numpy(photos.pixels), torch.from_numpy(photos.labels), torch.arange(len(photos.labels))
    )


torch.manual_seed(0)
train, held_out = load_photos()
train_loader = DataLoader(to_dataset(train), batch_size=16, shuffle=True)
eval_loader = DataLoader(to_dataset(held_out), batch_size=16)

encoder = nn.Sequential(
    nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(),
    nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 4 * 4, 64),
)  # fmt: skip
head = nn.Linear(64, train.num_labels)  # only to train: embeddings are what the encoder gives
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
recall = RecallAtK(ks=(1, 5))

for epoch in range(2):
    encoder.train()
    for pixels, labels, _ in train_loader:
        loss = nn.functional.cross_entropy(head(encoder(pixels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    encoder.eval()
    recall.reset()
    with torch.no_grad():
        for pixels, labels, ids in eval_loader:
            recall.update(encoder(pixels), labels, ids)
    values = recall.compute()  # {"recall@1": tensor, "recall@5": tensor}
    interval = recall.report.values_by_metric["recall@1"].interval
    print(f"epoch {epoch}: recall@1 {values['recall@1']:.4f}, interval {interval.low:.4f} to {interval.high:.4f}")

print(recall.report)
