"""Reads the sets of a fine-tuning task, makes their rows and keeps these in files."""

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import time

import numpy as np

from training.run import compiler, distribution
from training.storage.folder import Folder
from errors import UserError, count
from files import anywhere, json_files, local, sources
from text.progress import Progress
from text.records import rows
from training.finetuning.options import FineTuningOptions
from training.finetuning.task import Task

_NOTED = {"fingerprint", "rows", "sha256", "counts", "tokens", "unknown"}
_MANY_UNKNOWN = 0.1  # of all tokens; text in the vocabulary's language has far fewer


@dataclasses.dataclass
class Set:
    """One split: its rows are in a file, and what scoring needs is in memory."""

    split: str
    examples: list
    notes: list
    example_numbers: np.ndarray
    file: rows.Rows
    fingerprint: str


class Sets:
    """Reads and featurizes the splits of a task.

    Rows go to TFRecord files in output_dir, and are reused if examples, vocabulary and
    flags are unchanged. The note next to a file, <file>.json, says what it was made from.
    Until `close`, no other process of this program writes to a file that was read; remote
    files have no such lock.
    """

    def __init__(
        self, task: Task, flags: FineTuningOptions, folder: Folder, strategy, log
    ):
        self.task, self.flags, self.strategy, self.log = task, flags, strategy, log
        self.folder = folder
        self.teacher = None  # of a student, whose answers become fields of the rows
        self._examples, self._digests, self._sets = {}, {}, {}  # by split
        self._num_tokens = collections.Counter()
        self._locks = contextlib.ExitStack()

    def close(self) -> None:
        """Lets other processes write to the files again."""
        self._locks.close()

    def examples(self, split: str) -> list:
        """What the task reads, once."""
        if split not in self._examples:
            self._examples[split] = self.task.read(split)
        return self._examples[split]

    def digest(self, split: str) -> str:
        """The SHA-256 of the examples, in hexadecimal."""
        if split not in self._digests:
            self._digests[split] = _digest(self.examples(split))
        return self._digests[split]

    @property
    def identity(self) -> dict:
        """The examples that a training depends on; those that stop it early, too."""
        digests = {"training_examples": self.digest("train")}
        if self.flags.early_stopping_patience:
            digests["dev_examples"] = self.digest(self.task.eval_sets[0])
        return digests

    def read(self, split: str) -> Set:
        """A split with its rows, which are made if necessary; once.

        Raises:
            UserError: no example makes a row, or the file cannot be written.
        """
        if split not in self._sets:
            self._sets[split] = self._read(split)
        return self._sets[split]

    def _read(self, split: str) -> Set:
        flags = self.flags
        examples = self.examples(split)
        layout = self.task.layout(examples, flags.max_seq_length)
        answers = self._answers(split)
        if answers:
            labels = {**layout.labels, **answers.fields}
            layout = dataclasses.replace(layout, labels=labels)
        fingerprint = self._fingerprint(split, layout, answers)
        path = self.folder.file(f"{self._name(split)}.tf_record")
        notes, numbers = [], []

        def make_rows():  # each time from the beginning
            notes.clear()
            numbers.clear()
            numbered = self._rows(examples, split, layout)
            for number, row in answers.join(numbered) if answers else numbered:
                if split != "train":
                    notes.append(row.notes)
                    numbers.append(number)
                yield row

        def collect_notes():
            # Scoring needs the notes on every host, even if rows need not be written.
            if split != "train" and not numbers:
                collections.deque(make_rows(), maxlen=0)

        if not distribution.is_chief(self.strategy):
            collect_notes()
        note = distribution.on_chief(
            self.strategy, lambda: self._provide(path, make_rows, layout, fingerprint)
        )
        collect_notes()
        if answers:
            distribution.on_chief(
                self.strategy, lambda: self.teacher.keep(split, answers, make_rows)
            )
        note = note or _read_note(path)
        distribution.check_same(
            self.strategy,
            note.get("rows", -1),
            "output_dir does not contain the same files on all hosts; they must share it",
        )
        counts = [f"; {n} {what}" for what, n in sorted(note["counts"].items()) if n]
        if share := note["unknown"] / max(note["tokens"], 1):
            counts.append(f"; {share:.2%} of the tokens are [UNK]")
        if share > _MANY_UNKNOWN:
            counts.append(": check --vocab_file, --do_lower_case and --strip_accents")
        counts = "".join(counts)
        if not note["rows"]:
            raise UserError(
                f"{split}: none of {len(examples)} examples makes a row{counts}; check "
                "that it is the right file"
            )
        # The texts of pairs, for example, each once.
        what = "text" if isinstance(examples[0], str) else "example"
        number, rows_made = count(len(examples), what), count(note["rows"], "row")
        self.log.say(f"{split}: {number}, {rows_made}{counts}")
        file = self._open_rows(path, layout)
        return Set(split, examples, notes, np.array(numbers), file, fingerprint)

    def _open_rows(self, path, layout):
        flags, cost = self.flags, 0
        if flags.compiles:  # all replicas wait for a program
            cost = compiler.TOKENS_PER_PROGRAM * self.strategy.num_replicas_in_sync
        is_bucketed = flags.length_buckets and not flags.uses_tpu
        lengths = rows.LENGTHS if is_bucketed else ()
        return rows.Rows(path, layout, lengths=lengths, tokens_per_length=cost)

    def _answers(self, split):
        """The teacher's answers to the rows of a set, if they are to be in the rows."""
        if self.teacher is None or split not in self.teacher.splits:
            return None
        return self.teacher.answers(split)

    def _provide(self, path, made, layout, fingerprint):
        """Makes sure that a file has these rows and keeps them until `close`.

        Returns:
            the file's note.
        """
        with anywhere.access(path):
            self.folder.claim()
            if sources.is_remote(path):
                return self._refresh(path, made, layout, fingerprint)
            waiting = False
            while True:
                # A process locks a file exclusively while it checks or writes it, and
                # shares the lock while it reads, until the end.
                with contextlib.ExitStack() as alone:
                    in_use = _try_lock(alone, path, shared=False)
                    if not in_use:
                        local.remove_temporaries(path)
                        note = self._refresh(path, made, layout, fingerprint)
                if not _try_lock(self._locks, path, shared=True):
                    break
                if not waiting:
                    self.log.say(f"{path}: waiting for another process to write it")
                waiting = True
                time.sleep(0.5)
        if in_use:
            note = _read_note(path)
            if not _is_fresh(path, note, fingerprint):
                raise in_use
        return note

    def _refresh(self, path, made, layout, fingerprint):
        """Writes a file unless there is an intact one of exactly this set.

        Returns:
            the file's note.
        """
        note = _read_note(path)
        if _is_fresh(path, note, fingerprint):
            return note
        if not note:
            for place in (path, f"{path}.json"):
                self.folder.check_own(os.path.basename(place))
        elif _is_of(note, fingerprint):
            self.log.say(f"{path}: damaged; rebuilding it")
        return self._write(path, made, layout, fingerprint)

    def _rows(self, examples, split, layout):
        self.task.counts.clear()
        self._num_tokens.clear()
        unknown = self.task.tokenizer.vocabulary.unk_id
        total = len(examples)
        with Progress(f"rows of {split}", total, "examples", brief=True) as progress:
            for number, example in enumerate(examples):
                for row in self.task.featurize(example, split):
                    self._num_tokens.update(
                        _tokens_of(row, layout.num_choices, unknown)
                    )
                    yield number, row
                progress.advance(1)

    def _write(self, path, made, layout, fingerprint):
        """Writes rows, and a note of what they were made from; returns the note."""
        # The note comes first, because a file that a killed process left without one would
        # seem to be somebody else's. Without a checksum, it does not describe a file yet.
        note = {"fingerprint": fingerprint}
        _write_note(path, note)
        note["rows"] = rows.write(path, made(), layout)
        note["sha256"] = _sha256(path)
        note["counts"] = dict(self.task.counts)
        note |= {name: self._num_tokens[name] for name in ("tokens", "unknown")}
        _write_note(path, note)
        return note

    def _name(self, split):
        """The release's names: train, eval, predict; further sets add their own."""
        for name, splits in (
            ("eval", self.task.eval_sets),
            ("predict", self.task.test_sets),
        ):
            if split in splits:
                return name if split == splits[0] else f"{name}_{split}"
        return split

    def _fingerprint(self, split, layout, answers):
        """Hashes everything that determines the rows."""
        settings = sorted(self.task.settings().items())
        items = [layout, self.task.tokenizer.settings, settings, self.digest(split)]
        return _digest([*items, self.teacher.digest] if answers else items)


def _try_lock(stack, path, *, shared) -> UserError | None:
    """Takes a lock, or returns an error that names its holder."""
    try:
        stack.enter_context(local.hold_lock(path, shared=shared))
    except UserError as error:
        return error


def _read_note(path) -> dict:
    """What is known about a file of rows; empty if the note is not this program's."""
    note = json_files.read_own(f"{path}.json")
    return note if "fingerprint" in note else {}


def _write_note(path, note):
    with anywhere.replacing(f"{path}.json", "w") as file:
        file.write(json.dumps(note, indent=2) + "\n")


def _is_of(note, fingerprint):
    """Whether a note is complete, and of exactly this set."""
    return note.keys() >= _NOTED and note["fingerprint"] == fingerprint


def _is_fresh(path, note, fingerprint):
    """Whether a file is intact and of exactly this set."""
    return (
        _is_of(note, fingerprint)
        and anywhere.exists(path)
        and note["sha256"] == _sha256(path)
    )


def _sha256(path):
    digest = hashlib.sha256()
    with anywhere.open_file(path) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _tokens_of(row, num_choices, unknown):
    """How many tokens a row has, and how many of them are unknown."""
    sequences = row.input_ids if num_choices else [row.input_ids]
    number = sum(int(np.sum(np.equal(ids, unknown))) for ids in sequences)
    return {
        "tokens": sum(map(len, sequences)) - row.blanks,
        "unknown": number - row.blanks,
    }


def _digest(items):
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
