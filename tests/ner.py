"""Small files and runs of run_ner.py, for its tests."""

import dataclasses
import random

import run_ner
from training.storage import checkpoint
from training.storage.folder import Folder
from modeling.architectures.bert import BertEncoder
from tests import jobs, tiny
from text.tasks import tags
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

PIECES = [*"abPpLl.", *(f"##{letter}" for letter in "ab")]
VOCABULARY = [*SPECIAL_TOKENS, *PIECES]
TINY = tiny.config(vocab_size=len(VOCABULARY))
DEEP = dataclasses.replace(TINY, num_hidden_layers=4)


def sentence(rng):
    """Words and IOB2 tags: the first letter of a word tells its tag."""
    words, marks = [], []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["PER", "LOC", None])
        for i in range(rng.randint(1, 2)):
            first = {"PER": "Pp", "LOC": "Ll", None: "bb"}[kind][i]
            words.append(first + "".join(rng.choices("ab", k=rng.randint(0, 3))))
            marks.append(f"{'I' if i else 'B'}-{kind}" if kind else "O")
    return [*words, "."], [*marks, "O"]


def conll(count, seed, scheme="iob1"):
    """A file of two documents, with four columns as CoNLL-2003's."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        if number in (0, count // 2):
            lines += ["-DOCSTART- -X- -X- O", ""]
        words, marks = sentence(rng)
        marks = tags.mark(tags.entities(marks), len(marks), scheme)
        pairs = zip(words, marks, strict=True)
        lines += [*(f"{word} NN B-NP {mark}" for word, mark in pairs), ""]
    return "".join(f"{line}\n" for line in lines)


def write_files(folder, config=TINY):
    """The three files, a vocabulary and a config."""
    for split, count, seed in (("train", 48, 1), ("dev", 20, 2), ("test", 10, 3)):
        (folder / f"{split}.txt").write_text(conll(count, seed))
    tiny.write(folder, PIECES, config)
    return folder


def save_encoder(folder, config=TINY):
    encoder = BertEncoder(config, seed=5)
    weights = {variable.path: variable.numpy() for variable in encoder.weights}
    checkpoint.save(Folder.open(str(folder / "encoder")), 1, weights, keep=1)
    return weights


def flags(folder, **changes):
    own = {
        "data_dir": str(folder),
        "do_lower_case": False,
        "max_seq_length": 40,
        "learning_rate": [1e-2],
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_ner, flags(folder, **changes))


def task_of(folder, **changes):
    given = run_ner.Options(**flags(folder, do_eval=True, **changes))
    vocabulary = Vocabulary.load(given.vocab_file)
    return run_ner.Tagger(given, WordPiece(vocabulary, do_lower_case=False))
