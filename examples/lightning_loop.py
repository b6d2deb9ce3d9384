"""A Lightning Trainer that logs recall@1 with its interval after each epoch, and keeps the best checkpoint.

pip install 'recallatk[lightning]'
python examples/lightning_loop.py
"""

from __future__ import annotations

import tempfile

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from photos import load_photos
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from recallatk.integrations.lightning import RecallCallback


def to_loader(photos, **options):
    ids = torch.arange(len(photos.labels))
    dataset = TensorDataset(torch.from_numpy(photos.pixels), torch.from_numpy(photos.labels), ids)
    return DataLoader(dataset, batch_size=16, **options)


class Encoder(pl.LightningModule):
    """A small network; the head is only there to train it."""

    def __init__(self, num_labels):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 4 * 4, 64),
        )  # fmt: skip
        self.head = nn.Linear(64, num_labels)

    def training_step(self, batch, batch_idx):
        pixels, labels, _ = batch
        return nn.functional.cross_entropy(self.head(self.encoder(pixels)), labels)

    def validation_step(self, batch, batch_idx):
        pixels, labels, ids = batch
        return {"embeddings": self.encoder(pixels), "labels": labels, "ids": ids}  # what RecallCallback reads

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


pl.seed_everything(0, verbose=False)
train, held_out = load_photos()
recall = RecallCallback(ks=(1, 5))
best = ModelCheckpoint(monitor="val/recall@1", mode="max")
with tempfile.TemporaryDirectory() as folder:
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[recall, best],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Encoder(train.num_labels), to_loader(train, shuffle=True), to_loader(held_out))
print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})
print(f"best recall@1: {float(best.best_model_score):.4f}")
print(recall.report)
