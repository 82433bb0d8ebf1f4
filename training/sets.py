"""The sets of a fine-tuning task: read, made rows, kept in files; knows no models."""

import collections
import dataclasses
import functools
import hashlib
import json
import os

import numpy as np

from text import rows
from text.errors import UserError
from text.progress import Progress
from training import checkpoint, distribution
from training.task import Task

# isort: split
import tensorflow as tf

_MANY_UNKNOWN = 0.1  # of all tokens; text of the vocabulary's language has far fewer


@dataclasses.dataclass
class Set:
    """One split; its rows are in a file, and in memory what scoring needs of them."""

    split: str
    examples: list
    notes: list
    example_numbers: np.ndarray
    file: rows.Rows
    fingerprint: str


class Sets:
    """Reads and featurizes the splits of a task.

    Rows go to TFRecord files in output_dir. Those of the training set are used again by
    the next run where examples, vocabulary and flags are the same.
    """

    def __init__(self, task: Task, given, strategy, log):
        self.task, self.given, self.strategy, self.log = task, given, strategy, log
        # By split: the examples; their SHA-256 in hexadecimal; and all that is made.
        self.examples = functools.cache(self._examples)
        self.digest = functools.cache(lambda split: _digest(self.examples(split)))
        self.read = functools.cache(self._read)
        self._layouts = {}
        self._num_tokens = collections.Counter()

    def _examples(self, split: str) -> list:
        task = self.task
        examples = task.read(split)
        length = self.given.max_seq_length
        self._layouts[split] = rows.Layout(length, task.num_choices, task.fields)
        return examples

    def _read(self, split: str) -> Set:
        given = self.given
        examples = self.examples(split)
        layout = self._layouts[split]
        fingerprint = self._fingerprint(split, layout)
        path = os.path.join(given.output_dir, f"{self._name(split)}.tf_record")
        notes, numbers = [], []
        if split == "train":
            fresh = self._is_fresh(path, fingerprint)
            # Together: a host that is late may find what the chief wrote meanwhile.
            if distribution.any_host(self.strategy, not fresh):
                self._write(path, self._rows(examples, split), layout, fingerprint)
        else:

            def noted():
                for number, row in self._rows(examples, split):
                    notes.append(row.notes)
                    numbers.append(number)
                    yield number, row

            made = noted()
            if not distribution.is_chief(self.strategy):
                collections.deque(made, maxlen=0)  # it scores as the chief does
            self._write(path, made, layout, fingerprint)
        note = checkpoint.read_json(f"{path}.json") or {}
        distribution.check_same(
            self.strategy,
            note.get("rows", -1),
            "output_dir does not hold the same files on all hosts; they must share it",
        )
        counts = [f"; {n} {what}" for what, n in sorted(note["counts"].items()) if n]
        if share := note["unknown"] / max(note["tokens"], 1):
            counts.append(f"; {share:.2%} of the tokens are [UNK]")
        if share > _MANY_UNKNOWN:
            counts.append(": another vocabulary, --do_lower_case or --strip_accents?")
        counts = "".join(counts)
        if not note["rows"]:
            raise UserError(
                f"{split}: none of {len(examples)} examples makes a row{counts}; is it the "
                "right file?"
            )
        self.log.say(f"{split}: {len(examples)} examples, {note['rows']} rows{counts}")
        file = rows.Rows(
            path, layout, bucketed=given.length_buckets and not given.uses_tpu
        )
        return Set(split, examples, notes, np.array(numbers), file, fingerprint)

    def _is_fresh(self, path, fingerprint):
        """Whether a file of rows is whole and of this very set."""
        note = checkpoint.read_json(f"{path}.json") or {}
        if note.get("fingerprint") != fingerprint or not tf.io.gfile.exists(path):
            return False
        return tf.io.gfile.stat(path).length == note.get("bytes")

    def _rows(self, examples, split):
        self.task.counts.clear()
        self._num_tokens.clear()
        unknown = self.task.tokenizer.vocabulary.unk_id
        num_choices = self._layouts[split].num_choices
        total = len(examples)
        with Progress(f"rows of {split}", total, "examples", brief=True) as progress:
            for number, example in enumerate(examples):
                for row in self.task.featurize(example, split):
                    self._num_tokens.update(_tokens_of(row, num_choices, unknown))
                    yield number, row
                progress.advance(1)

    def _write(self, path, numbered, layout, fingerprint):
        """Writes rows, and beside them what they were made of."""

        def write():
            # Without its note a file counts for nothing.
            if tf.io.gfile.exists(f"{path}.json"):
                tf.io.gfile.remove(f"{path}.json")
            number = rows.write(path, (row for _, row in numbered), layout)
            counts = dict(self.task.counts)
            note = {
                "fingerprint": fingerprint,
                "rows": number,
                "bytes": tf.io.gfile.stat(path).length,
                "counts": counts,
                **{name: self._num_tokens[name] for name in ("tokens", "unknown")},
            }
            checkpoint.write_file(f"{path}.json", json.dumps(note, indent=2) + "\n")

        distribution.on_chief(self.strategy, write)

    def _name(self, split):
        """The release's names: train, eval, predict; further sets add their own."""
        for name, splits in (
            ("eval", self.task.eval_sets),
            ("predict", self.task.test_sets),
        ):
            if split in splits:
                return name if split == splits[0] else f"{name}_{split}"
        return split

    def _fingerprint(self, split, layout):
        """Of all that rows follow from."""
        settings = sorted(self.task.settings().items())
        return _digest(
            [layout, self.task.tokenizer.settings, settings, self.digest(split)]
        )


def _tokens_of(row, num_choices, unknown):
    """How many tokens a row has, and how many of them the vocabulary lacks."""
    sequences = row.input_ids if num_choices else [row.input_ids]
    return {
        "tokens": sum(map(len, sequences)),
        "unknown": sum(int(np.sum(np.equal(ids, unknown))) for ids in sequences),
    }


def _digest(items):
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
