"""The other side of benchmarks/peers_fine_tuning.py: epochs of transformers and PyTorch.

A plain loop of forward pass, backward pass, clipping and AdamW in one pass (fused, the
default of transformers' own training); rows are tokens before the first turn.
"""

import json
import sys

import torch
import transformers

from benchmarks import quality_transformers, turns


def main() -> None:
    settings = json.loads(sys.argv[1])
    settings |= {
        "learning_rate": 5e-5,
        "warmup_proportion": 0.1,
        "num_train_epochs": 1,
        "adamw": {"fused": True},
    }
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model_dir"])
    rows = quality_transformers.examples(settings["train_file"], tokenizer, settings)
    model = transformers.BertForSequenceClassification.from_pretrained(
        settings["model_dir"], num_labels=settings["num_labels"]
    )
    by_length = settings.get("group_by_length", False)
    batches = quality_transformers.loader(
        rows, tokenizer, settings, trains=True, by_length=by_length
    )
    if settings.get("compile"):
        model = torch.compile(model, dynamic=True)

    def epoch(_):
        quality_transformers.train(model, batches, settings)

    turns.answer(epoch)


if __name__ == "__main__":
    main()
