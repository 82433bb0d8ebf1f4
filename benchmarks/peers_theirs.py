"""The other side of benchmarks/peers.py: an update of keras-hub or transformers.

Needs only the packages of the system that it runs; see requirements/peers.txt.
"""

import json
import os
import sys

from benchmarks import turns
from benchmarks.flop import NUM_PREDICTIONS


def numbers(settings):
    """A batch of random tokens."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows, length = settings["batch_size"], settings["max_seq_length"]

    def integers(high, *shape):
        return rng.integers(0, high, shape, dtype=np.int32)

    return {
        "input_ids": integers(settings["vocab_size"], rows, length),
        "segment_ids": integers(2, rows, length),
        "positions": integers(length, rows, NUM_PREDICTIONS),
        "labels": integers(settings["vocab_size"], rows, NUM_PREDICTIONS),
        "next": integers(2, rows),
    }


def keras_hub(settings):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import keras_hub
    import numpy as np
    import tensorflow as tf

    keras.config.set_dtype_policy(settings["dtype"])
    hidden = settings["hidden_size"]
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=settings["vocab_size"],
        num_layers=settings["num_hidden_layers"],
        num_heads=hidden // 64,
        hidden_dim=hidden,
        intermediate_dim=4 * hidden,
        dropout=0.1,
        max_sequence_length=512,
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
        jit_compile=settings["jit"],
    )
    batch = numbers(settings)
    inputs = {
        "token_ids": batch["input_ids"],
        "segment_ids": batch["segment_ids"],
        "padding_mask": np.ones_like(batch["input_ids"]),
        "mask_positions": batch["positions"],
    }
    weights = np.ones(batch["labels"].shape, np.float32)
    data = tf.data.Dataset.from_tensors((inputs, batch["labels"], weights)).repeat()
    model.make_train_function()
    batches = iter(data)

    def update(count=1):
        for _ in range(count):
            logs = model.train_function(batches)
        return {"loss": float(logs["loss"])}

    return update


def transformers(settings):
    import torch
    import transformers

    hidden = settings["hidden_size"]
    config = transformers.BertConfig(
        vocab_size=settings["vocab_size"],
        hidden_size=hidden,
        num_hidden_layers=settings["num_hidden_layers"],
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
        attn_implementation=settings["attention"],
        hidden_act="gelu_new",
    )
    device = settings["device"]
    model = transformers.BertForPreTraining(config).train().to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
    )
    batch = {k: torch.tensor(v).long().to(device) for k, v in numbers(settings).items()}
    mask = torch.ones_like(batch["input_ids"])
    rows = torch.arange(len(mask), device=device)[:, None]
    everywhere = torch.full_like(batch["input_ids"], -100)
    everywhere[rows, batch["positions"]] = batch["labels"]

    def loss():
        outputs = model.bert(
            batch["input_ids"],
            attention_mask=mask,
            token_type_ids=batch["segment_ids"],
        )
        states, labels = outputs.last_hidden_state, everywhere
        if not settings.get("everywhere"):
            states, labels = states[rows, batch["positions"]], batch["labels"]
        logits, relationship = model.cls(states, outputs.pooler_output)
        entropy = torch.nn.functional.cross_entropy
        masked = entropy(logits.flatten(0, 1).float(), labels.flatten())
        return masked + entropy(relationship.float(), batch["next"])

    if settings.get("compile"):
        loss = torch.compile(loss)
    bfloat16 = settings["dtype"] == "mixed_bfloat16"

    def update(count=1):
        for _ in range(count):
            with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
                value = loss()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        value = float(value)  # waits for a GPU
        if device == "cuda":
            return {"loss": value, "bytes": torch.cuda.max_memory_allocated()}
        return {"loss": value}

    return update


def main() -> None:
    settings = json.loads(sys.argv[1])
    update = {"keras_hub": keras_hub, "transformers": transformers}[settings["system"]](
        settings
    )
    for _ in range(settings["warm_up"]):
        update()
    turns.answer(lambda count: update(count or 1))


if __name__ == "__main__":
    main()
