"""Small files and runs of run_text_to_text.py, for its tests."""

import pathlib

import run_text_to_text
from training.run.settle import TrainableModel
from family.t5.config import T5Config
from tests import jobs, tiny
from text.tokenizers.vocabulary import SEP, SPECIAL_TOKENS

COLORS = "red blue green black".split()
WORDS = [*COLORS, *"say not both of and ? question context : a".split()]
TINY = T5Config(
    vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    attention_head_size=16,
    intermediate_size=64,
    eos_token_id=SPECIAL_TOKENS.index(SEP),
    hidden_dropout_prob=0.0,
)


def pairs():
    """Inputs and targets: a color, alone or in a phrase."""
    for color in COLORS:
        yield f"say {color}", color
        yield f"say {color} ?", f"not {color}"
        yield f"{color} ?", f"both of {color}"


def write_table(path: pathlib.Path, rows, header=("input", "target")) -> None:
    lines = ["\t".join(row) for row in (header, *rows)]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def write_files(folder: pathlib.Path) -> pathlib.Path:
    """A table for each set, a vocabulary and a config; the test set has no targets."""
    for name in ("train", "dev"):
        write_table(folder / f"{name}.tsv", pairs())
    rows = [(number, text) for number, (text, _) in enumerate(pairs())]
    rows = [(f"q{number}", text) for number, text in rows]
    write_table(folder / "test.tsv", rows, ("index", "input"))
    tiny.write(folder, WORDS, TINY)
    return folder


def flags(folder: pathlib.Path, **changes) -> dict:
    own = {
        "data_dir": str(folder),
        "task_name": "custom",
        "max_seq_length": 8,
        "max_target_length": 6,
        "learning_rate": [5e-3],
    }
    return jobs.flags(folder, **own | changes)


def run(folder: pathlib.Path, **changes) -> None:
    jobs.run(run_text_to_text, flags(folder, **changes))


def make_task(folder: pathlib.Path, **changes):
    """The task, as the script makes it."""
    given = run_text_to_text.Options(**flags(folder, do_predict=True, **changes))
    return run_text_to_text.make(TrainableModel(given))
