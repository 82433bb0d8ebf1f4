"""The other side of benchmarks/quality.py: one run of transformers and PyTorch, in the
style of transformers' own examples. Needs only those two, and computes no metrics.

python benchmarks/quality_transformers.py SETTINGS.json

The settings name the files; answers to the dev set go to the one under "predictions".
"""

import json
import math
import sys

import torch
import transformers
from transformers.trainer_pt_utils import LengthGroupedSampler

_LOG_EVERY_STEPS = 50


def train(model, batches, settings: dict) -> None:
    """Trains with AdamW (bias-corrected, unlike the release's) and a linear schedule.

    Args:
        batches: a DataLoader over one shuffled epoch.
        settings: with "bfloat16", computes in it where PyTorch considers that safe;
            "adamw" are more arguments of the optimizer.
    """
    not_decayed = ("bias", "LayerNorm.weight")
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if name.endswith(not_decayed) else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings["learning_rate"],
        **settings.get("adamw", {}),
    )
    steps = len(batches) * settings["num_train_epochs"]
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(steps * settings["warmup_proportion"]), steps
    )
    is_bfloat16 = settings.get("bfloat16", False)
    model.train()
    step, losses = 0, []
    for _ in range(settings["num_train_epochs"]):
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            losses.append(loss.item())
            if step % _LOG_EVERY_STEPS == 0 or step == steps:
                mean = math.fsum(losses) / len(losses)
                print(f"step {step}/{steps}: loss {mean:.4f}", flush=True)
                losses.clear()


def loader(rows, tokenizer, settings, *, trains=False, by_length=True):
    """Batches padded to their longest row.

    Args:
        trains: whether to shuffle rows.
        by_length: if so, whether similar lengths share a batch.
    """
    size = settings["train_batch_size"]
    lengths = [len(row["input_ids"]) for row in rows]
    grouped = LengthGroupedSampler(size, lengths=lengths)
    return torch.utils.data.DataLoader(
        rows,
        size,
        shuffle=trains and not by_length,
        sampler=grouped if trains and by_length else None,
        collate_fn=transformers.DataCollatorWithPadding(tokenizer),
    )


def predict(model, batches):
    """Yields a model's outputs for each batch."""
    model.eval()
    with torch.no_grad():
        for batch in batches:
            yield model(**batch)


# === Classification and regression ===================================================


def examples(path, tokenizer, settings: dict) -> list[dict]:
    """The rows of a file of JSON lines, not padded."""
    with open(path, encoding="utf-8") as file:
        examples = [json.loads(line) for line in file]
    return [
        {
            **tokenizer(
                example["text_a"],
                example["text_b"],
                truncation=True,
                max_length=settings["max_seq_length"],
            ),
            "labels": example["label"],
        }
        for example in examples
    ]


def classify(tokenizer, settings: dict) -> list[list[float]]:
    """Logits of the dev set, after training."""
    model = transformers.BertForSequenceClassification.from_pretrained(
        settings["model_dir"], num_labels=settings["num_labels"]
    )
    rows = examples(settings["train_file"], tokenizer, settings)
    train(model, loader(rows, tokenizer, settings, trains=True), settings)
    rows = examples(settings["dev_file"], tokenizer, settings)
    batches = loader(rows, tokenizer, settings)
    return [row for out in predict(model, batches) for row in out.logits.tolist()]


# === Questions =======================================================================


def answer(tokenizer, settings: dict) -> dict[str, str]:
    """Question id -> answer, after training."""
    model = transformers.BertForQuestionAnswering.from_pretrained(settings["model_dir"])
    rows = [
        row | dict(zip(("start_positions", "end_positions"), place, strict=True))
        for question, context in questions(settings["train_file"])
        for row, place in labelled(question, context, tokenizer, settings)
    ]
    train(model, loader(rows, tokenizer, settings, trains=True), settings)

    rows, notes = [], []
    for question, context in questions(settings["dev_file"]):
        for row, offsets in windows(question, context, tokenizer, settings):
            rows.append(row)
            notes.append((question["id"], context, offsets))
    best = {}
    outputs = (
        pair
        for out in predict(model, loader(rows, tokenizer, settings))
        for pair in zip(out.start_logits, out.end_logits, strict=True)
    )
    for (key, context, offsets), (starts, ends) in zip(notes, outputs, strict=True):
        score, text = best_span(context, offsets, starts, ends, settings)
        best[key] = max(best.get(key, (-math.inf, "")), (score, text))
    return {key: text for key, (_, text) in best.items()}


def questions(path):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question, paragraph["context"]


def windows(question, context, tokenizer, settings):
    """Yields the rows of a question, each with its tokens' offsets in the context; None
    for tokens outside the context."""
    encoded = tokenizer(
        question["question"].lstrip(),
        context,
        truncation="only_second",
        max_length=settings["max_seq_length"],
        stride=settings["doc_stride"],
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    for i, offsets in enumerate(encoded["offset_mapping"]):
        names = ("input_ids", "token_type_ids", "attention_mask")
        sides = encoded.sequence_ids(i)
        yield (
            {name: encoded[name][i] for name in names},
            [
                at if side == 1 else None
                for at, side in zip(offsets, sides, strict=True)
            ],
        )


def labelled(question, context, tokenizer, settings):
    """Yields the rows of a question, each with the first and the last token of its answer;
    [CLS] if the window does not contain it."""
    answer = question["answers"][0]
    first, stop = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    for row, offsets in windows(question, context, tokenizer, settings):
        places = [i for i, at in enumerate(offsets) if at]
        inside = [i for i in places if offsets[i][0] < stop and offsets[i][1] > first]
        is_whole = offsets[places[0]][0] <= first and offsets[places[-1]][1] >= stop
        yield row, (inside[0], inside[-1]) if inside and is_whole else (0, 0)


def best_span(context, offsets, starts, ends, settings):
    """The score and the text of a window's best answer."""
    size = settings["n_best_size"]
    best = (-math.inf, "")
    for start in starts[: len(offsets)].argsort(descending=True)[:size].tolist():
        for end in ends[: len(offsets)].argsort(descending=True)[:size].tolist():
            is_short = start <= end < start + settings["max_answer_length"]
            if is_short and offsets[start] and offsets[end]:
                text = context[offsets[start][0] : offsets[end][1]]
                best = max(best, ((starts[start] + ends[end]).item(), text))
    return best


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    transformers.set_seed(settings["seed"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model_dir"])
    work = classify if "num_labels" in settings else answer
    predictions = work(tokenizer, settings)
    with open(settings["predictions"], "w", encoding="utf-8") as file:
        json.dump(predictions, file)


if __name__ == "__main__":
    main(sys.argv[1])
