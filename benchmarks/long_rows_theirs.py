"""The other side of benchmarks/long_rows.py: an update of transformers' ModernBERT.

Needs only numpy and, for that update, PyTorch and transformers.
"""

import json
import sys

import numpy as np

from benchmarks import turns

_SPREAD = 0.9  # of the logarithm of a document's length


def numbers(settings: dict) -> dict[str, np.ndarray]:
    """A batch of random tokens, int32, and which are predicted.

    Args:
        settings: the flags of benchmarks/long_rows.py, the length of a row, and the kind.
    """
    rng = np.random.default_rng(0)
    length, kind = settings["length"], settings["kind"]
    rows = max(1, settings["places"] // length)
    shape, predictions = (rows, length), int(length * settings["share"])
    mask, places = np.ones(shape, np.int32), np.tile(np.arange(length), (rows, 1))
    if kind != "whole":
        drawn = rng.lognormal(np.log(settings["document"]), _SPREAD, (rows, length))
        sizes = np.clip(drawn, 3, length).astype(int)
    if kind == "padded":
        mask = (np.arange(length) < sizes[:, :1]).astype(np.int32)
    if kind == "packed":
        ends = np.cumsum(sizes, axis=1)
        places = np.stack([_restart(row, length) for row in ends])
    positions = np.argsort(rng.random(shape) + 2 * (mask == 0), axis=1)[:, :predictions]
    wanted = np.rint(mask.sum(axis=1) * settings["share"])[:, None]
    batch = {
        "input_ids": rng.integers(5, settings["vocab_size"], shape),
        "input_mask": mask,
        "segment_ids": np.zeros(shape),
        "masked_lm_positions": np.sort(positions, axis=1),
        "masked_lm_ids": rng.integers(5, settings["vocab_size"], (rows, predictions)),
    }
    if kind == "packed":
        batch["position_ids"] = places
    batch = {name: values.astype(np.int32) for name, values in batch.items()}
    weights = (np.arange(predictions) < wanted).astype(np.float32)
    return batch | {"masked_lm_weights": weights}


def _restart(ends, length):
    """The places of tokens in documents with these ends."""
    begins = np.append(0, ends[ends < length])
    columns = np.arange(length)
    return columns - begins[np.searchsorted(begins, columns, "right") - 1]


def updater(settings: dict):
    """A function that runs an update."""
    import torch
    import transformers

    width = settings["hidden_size"]
    config = transformers.ModernBertConfig(
        vocab_size=settings["vocab_size"],
        hidden_size=width,
        num_hidden_layers=settings["num_hidden_layers"],
        num_attention_heads=width // 64,
        intermediate_size=3 * width // 2,
        attn_implementation="sdpa",
        pad_token_id=0,
        reference_compile=False,
    )
    model = transformers.ModernBertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
    )
    batch = {name: torch.tensor(x).long() for name, x in numbers(settings).items()}
    rows = torch.arange(len(batch["input_ids"]))[:, None]

    def update(request=None):
        states = model.model(
            batch["input_ids"], attention_mask=batch["input_mask"]
        ).last_hidden_state
        # Only what is predicted is compared with the vocabulary, as in ours.
        states = states[rows, batch["masked_lm_positions"]].flatten(0, 1)
        logits = model.decoder(model.head(states))
        loss = torch.nn.functional.cross_entropy(
            logits, batch["masked_lm_ids"].flatten()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"loss": float(loss), "tokens": int(batch["input_mask"].sum())}

    return update


def main() -> None:
    settings = json.loads(sys.argv[1])
    update = updater(settings)
    for _ in range(settings["warm_up"]):
        update()
    turns.answer(update)


if __name__ == "__main__":
    main()
