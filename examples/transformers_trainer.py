"""A Transformers Trainer that logs recall@1 with its interval after each epoch, and keeps the best checkpoint.

pip install 'recallatk[hf]' accelerate
python examples/transformers_trainer.py
"""

from __future__ import annotations

import tempfile

from photos import load_photos
from torch import nn
from transformers import Trainer, TrainingArguments, ViTConfig, ViTModel, ViTPreTrainedModel, set_seed

from recallatk.integrations.transformers import ComputeRecall


class Encoder(ViTPreTrainedModel):
    """A small vision transformer from scratch; the head is only there to train it."""

    def __init__(self, config):
        super().__init__(config)
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.head = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, pixel_values, labels=None):
        embeddings = self.vit(pixel_values).last_hidden_state[:, 0]
        loss = nn.functional.cross_entropy(self.head(embeddings), labels)
        return {"loss": loss, "embeddings": embeddings}  # the first output beside the loss is what is evaluated


def to_dataset(photos):
    return [{"pixel_values": p, "labels": label} for p, label in zip(photos.pixels, photos.labels, strict=True)]


set_seed(0)
train, held_out = load_photos()
config = ViTConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
    image_size=64, patch_size=16, num_labels=train.num_labels,
)  # fmt: skip
recall = ComputeRecall(ks=(1, 5))
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=Encoder(config),
        args=TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            eval_strategy="epoch",
            save_strategy="best",
            metric_for_best_model="recall@1",
            greater_is_better=True,
            disable_tqdm=True,
            use_cpu=True,
            report_to=[],
        ),
        train_dataset=to_dataset(train),
        eval_dataset=to_dataset(held_out),
        compute_metrics=recall,
    )
    trainer.train()
for entry in trainer.state.log_history:
    if "eval_recall@1" in entry:
        value, low, high = (entry[f"eval_recall@1{end}"] for end in ("", "_low", "_high"))
        print(f"epoch {entry['epoch']:.0f}: recall@1 {value:.4f}, interval {low:.4f} to {high:.4f}")
print(recall.report)
