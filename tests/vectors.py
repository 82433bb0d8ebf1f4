"""Small files and runs of run_retrieval.py, for its tests."""

import json
import random

import run_retrieval
from tests import jobs, tiny
from text.tokenizers.vocabulary import SPECIAL_TOKENS

LETTERS = "abcdefgh"
TINY = tiny.config(
    vocab_size=len(SPECIAL_TOKENS) + len(LETTERS),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def pairs(count, seed):
    """Texts that share letters; the second has two more."""
    rng = random.Random(seed)
    for _ in range(count):
        letters = rng.sample(LETTERS, 3)
        longer = letters + rng.sample(LETTERS, 2)
        rng.shuffle(longer)
        yield {"query": " ".join(letters), "positive": " ".join(longer)}


def scored_pairs(count, seed):
    """Texts, and how many letters they share, of three."""
    for pair in pairs(count, seed):
        a, b = pair.values()
        shared = len({*a.split()} & {*b.split()[:3]})
        yield {"sentence1": a, "sentence2": b, "score": shared}


def write_table(path, rows):
    """As .tsv with a header, or JSON lines."""
    rows = list(rows)
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, r.values())) for r in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_files(folder, config=TINY):
    """Pairs, a vocabulary and a config."""
    for seed, (name, count) in enumerate({"train": 64, "dev": 20, "test": 8}.items()):
        write_table(folder / f"{name}.tsv", pairs(count, seed))
    tiny.write(folder, LETTERS, config)
    return folder


def flags(folder, **changes):
    own = {"data_dir": str(folder), "max_seq_length": 16}
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_retrieval, flags(folder, **changes))
