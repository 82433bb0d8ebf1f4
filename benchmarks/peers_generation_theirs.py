"""The other side of benchmarks/peers_generation.py: rows of masked words as users of
transformers make them, with `tokenizers` and `datasets`.

Tokens and rows are made by `datasets.map` in batches and written to its Arrow files. Words
are masked while training, by a collator, anew in every epoch; here, batches are only
collated. Needs transformers, datasets and PyTorch; see requirements/peers.txt.

The last line that it prints is JSON: rows and tokens, and the seconds of each stage.
"""

import itertools
import json
import os
import random
import sys
import tempfile
import time

_BATCH_SIZE = 32


class Stages:
    """Seconds of each stage."""

    def __init__(self):
        self.seconds = {}
        self._began = time.perf_counter()

    def end(self, name):
        now = time.perf_counter()
        self.seconds[name] = now - self._began
        self._began = now


def grouped(texts, tokenizer, length, num_proc):
    """Every line a text with [CLS] and [SEP]; the tokens of 1,000 lines in one chain, cut
    into rows. What does not fill the last row is dropped."""

    def tokenized(batch):
        return tokenizer(batch["text"], return_special_tokens_mask=True)

    def cut(batch):
        chains = {name: list(itertools.chain(*rows)) for name, rows in batch.items()}
        whole = len(chains["input_ids"]) // length * length
        return {
            name: [chain[at : at + length] for at in range(0, whole, length)]
            for name, chain in chains.items()
        }

    rows = texts.map(
        tokenized, batched=True, num_proc=num_proc, remove_columns=["text"]
    )
    return rows.map(cut, batched=True, num_proc=num_proc)


def paired(texts, tokenizer, length, num_proc):
    """Every file a document and every line a sentence; two spans a row, half of them
    consecutive, as in the release."""

    def tokenized(batch):
        encoded = []
        for text in batch["text"]:
            lines = [line for line in text.splitlines() if line.strip()]
            encoded.append(tokenizer(lines, add_special_tokens=False)["input_ids"])
        return {"sentences": encoded}

    def joined(batch):
        rng = random.Random(0)
        columns = ("input_ids", "token_type_ids", "special_tokens_mask")
        rows = {name: [] for name in (*columns, "next_sentence_label")}
        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        for a, b, is_random in pairs(batch["sentences"], length - 3, rng):
            rows["input_ids"].append([cls, *a, sep, *b, sep])
            rows["token_type_ids"].append([0] * (len(a) + 2) + [1] * (len(b) + 1))
            special = [1, *[0] * len(a), 1, *[0] * len(b), 1]
            rows["special_tokens_mask"].append(special)
            rows["next_sentence_label"].append(int(is_random))
        return rows

    some = {"batched": True, "num_proc": num_proc}
    documents = texts.map(tokenized, remove_columns=["text"], **some)
    return documents.map(joined, remove_columns=["sentences"], **some)


def pairs(documents, room, rng):
    """Yields two spans of at most `room` tokens together, and whether the second is from
    another document; the release's algorithm."""
    for number, sentences in enumerate(documents):
        chunk, at, target = [], 0, _target(room, rng)
        while at < len(sentences):
            chunk.append(sentences[at])
            is_full = sum(map(len, chunk)) >= target or at == len(sentences) - 1
            if is_full:
                split = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = list(itertools.chain(*chunk[:split]))
                is_random = len(chunk) == 1 or rng.random() < 0.5
                if is_random:
                    b = _elsewhere(documents, number, target - len(a), rng)
                    at -= len(chunk) - split  # what was not used comes again
                else:
                    b = list(itertools.chain(*chunk[split:]))
                _truncate(a, b, room, rng)
                if a and b:
                    yield a, b, is_random
                chunk, target = [], _target(room, rng)
            at += 1


def _target(room, rng):
    return rng.randint(2, room) if rng.random() < 0.1 else room


def _elsewhere(documents, number, size, rng):
    other = rng.choice([i for i in range(len(documents)) if i != number] or [number])
    sentences, span = documents[other], []
    for sentence in sentences[rng.randrange(len(sentences)) :]:
        span += sentence
        if len(span) >= size:
            break
    return span


def _truncate(a, b, room, rng):
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


def main() -> None:
    settings, stages = json.loads(sys.argv[1]), Stages()
    with tempfile.TemporaryDirectory() as cache:  # every turn begins without one
        os.environ |= {"HF_DATASETS_CACHE": cache, "HF_HUB_OFFLINE": "1"}
        import datasets
        import torch
        import transformers

        datasets.disable_progress_bars()
        tokenizer = transformers.BertTokenizerFast(settings["vocab_file"])
        tokenizer.model_max_length = 10**9  # rows are cut later
        stages.end("imports")
        texts = datasets.load_dataset(
            "text",
            data_files=settings["input_files"],
            sample_by="document" if settings["pairs"] else "line",
            split="train",
        )
        stages.end("reading")
        make = paired if settings["pairs"] else grouped
        length, num_proc = settings["max_seq_length"], settings["num_proc"]
        rows = make(texts, tokenizer, length, num_proc)
        stages.end("tokens and rows")
        collate = transformers.DataCollatorForLanguageModeling(tokenizer)
        batches = torch.utils.data.DataLoader(
            rows, _BATCH_SIZE, shuffle=True, collate_fn=collate
        )
        tokens = 0
        for _ in range(settings["dupe_factor"]):
            for batch in batches:
                tokens += int(batch["attention_mask"].sum())
        stages.end("masking")
        instances = len(rows) * settings["dupe_factor"]
        figures = {"instances": instances, "tokens": tokens, "stages": stages.seconds}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
