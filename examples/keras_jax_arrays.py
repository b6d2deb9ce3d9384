"""Arrays of Keras on JAX: train a small network on photos, and know recall@1 with its interval after each epoch.

Any array that numpy can read is an embedding: those of Keras, JAX, TensorFlow and PyTorch need no adapter.

    pip install recallatk keras jax
    python examples/keras_jax_arrays.py
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from photos import load_photos

from recallatk import EmbeddingSet, EvalProtocol, evaluate_embeddings


class Recall(keras.callbacks.Callback):
    """Logs recall@1 and the ends of its interval after each epoch, where Keras' own callbacks can see them."""

    def __init__(self, encoder, photos):
        super().__init__()
        self.encoder, self.photos = encoder, photos

    def on_epoch_end(self, epoch, logs=None):
        embeddings = self.encoder(self.photos.pixels.transpose(0, 2, 3, 1), training=False)  # a JAX array
        rows = EmbeddingSet(embeddings, self.photos.labels, ids=self.photos.paths)
        self.report = evaluate_embeddings(rows, protocol=EvalProtocol(ks=(1, 5)))
        value = self.report.values_by_metric["recall@1"]
        logs["val_recall@1"] = value.value
        low, high = value.interval.low, value.interval.high
        print(f"epoch {epoch}: recall@1 {value.value:.4f}, interval {low:.4f} to {high:.4f}")


keras.utils.set_random_seed(0)
train, held_out = load_photos()
encoder = keras.Sequential([
    keras.Input((64, 64, 3)),
    keras.layers.Conv2D(16, 5, strides=2, padding="same", activation="relu"),
    keras.layers.Conv2D(32, 5, strides=2, padding="same", activation="relu"),
    keras.layers.AveragePooling2D(4), keras.layers.Flatten(), keras.layers.Dense(64),
])  # fmt: skip
model = keras.Sequential([encoder, keras.layers.Dense(train.num_labels)])  # the last layer is only there to train
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(2e-3), loss=loss)
recall = Recall(encoder, held_out)
history = model.fit(
    np.transpose(train.pixels, (0, 2, 3, 1)), train.labels, batch_size=16, epochs=2, verbose=0, callbacks=[recall]
)
print(history.history)
print(recall.report)
