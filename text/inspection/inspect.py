"""Checks record files: each record, their statistics, and their description."""

import collections
import dataclasses
import itertools

from errors import UserError
from files import sources
from text.inspection.inspector import first_broken
from text.inspection.statistics import Statistics
from text.inspection.table import make_inspector
from text.instances.table import RowOptions
from text.progress import Progress
from text.records import descriptions, encoding, framing
from text.records.descriptions import Description
from text.tokenizers.vocabulary import Vocabulary

_BATCH_ROWS = 1 << 11
_LINES_OF_A_RULE = 5
# The attributes of a description that are used, besides its flags.
_DESCRIBED = (
    "counts",
    "max_predictions_per_seq",
    "max_seq_length",
    "vocab_sha256",
    "vocab_size",
)
_FLAGS = (
    "do_whole_word_mask",
    "mask_share",
    "masked_lm_prob",
    "random_next_sentences",
    "random_share",
)


class Violations:
    """Counts violations by rule, and keeps the first lines of each."""

    def __init__(self):
        self.counts = collections.Counter()
        self._lines = collections.defaultdict(list)

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, rule: str, line: str) -> None:
        """`rule` is the same text for all violations of a kind; `line`, where and how."""
        self.counts[rule] += 1
        if self.counts[rule] <= _LINES_OF_A_RULE:
            self._lines[rule].append(line)

    def lines(self) -> list[str]:
        """The first lines of each rule, and how many more there are."""
        lines = []
        for rule, kept in self._lines.items():
            lines += kept
            if more := self.counts[rule] - len(kept):
                lines.append(f"... and {more:,} more: {rule}")
        return lines


def find_descriptions(paths: list[str]) -> dict[str, Description]:
    """The descriptions next to record files, which say how the records were made."""
    descriptions_of = descriptions.find(paths)
    for one in descriptions_of.values():
        missing = [name for name in _DESCRIBED if getattr(one, name) is None]
        missing += [name for name in _FLAGS if name not in one.flags]
        if missing:
            raise UserError(
                f"{one.path}: is not a description of records (lacks "
                f"{', '.join(missing)}); remove it, or write the records again"
            )
        RowOptions.of(one)
    return descriptions_of


class Inspection:
    """What was found in record files.

    Attributes:
        violations: Violations.
        statistics: Statistics of the records that break no rule; None if not even the
            sizes of a record could be determined.
        inspector: of the records of the first file; None if their kind could not be
            determined.
        shown: list of (where, record), the first that could be decoded.
        descriptions: dict of file to Description.
        num_records: number of records read.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        descriptions: dict[str, Description],
        *,
        masked_lm_prob: float | None = None,
        max_records: int = 0,
        num_shown: int = 0,
    ):
        """`masked_lm_prob` is that of the records, by default taken from the
        description; `max_records`, how many to read from each file, 0 for all;
        `num_shown`, how many to keep for display.
        """
        self.vocabulary = vocabulary
        self.descriptions = descriptions
        self.violations = Violations()
        self.statistics = None
        self.inspector = None
        self.shown = []
        self.num_records = 0
        self._masked_lm_prob = masked_lm_prob
        self._max_records = max_records or None
        self._num_shown = num_shown
        self._of_file = None  # the inspector of the file being read
        self._sums = collections.defaultdict(collections.Counter)  # by description
        for path, description in descriptions.items():
            _check_vocabulary(path, description, vocabulary)

    def read(self, paths: list[str]) -> None:
        """Reads and checks files one by one and as a whole; call it only once.

        A damaged file is read up to the damage.
        """
        sizes = [sources.size(path) for path in paths]
        with Progress("inspecting", sum(sizes), "MB", scale=1e6) as progress:
            for path, size in zip(paths, sizes, strict=True):
                self._read_file(path, size, progress)
        for one in {d.path: d for d in self.descriptions.values()}.values():
            self._compare_sums(one)
        if self.statistics:
            where = f"all {self.statistics.records:,} valid records"
            for rule, what in self.statistics.find_implausible():
                self.violations.add(rule, f"{where}: {rule}; {what}")

    def _read_file(self, path, size, progress):
        position = 0
        try:
            with sources.open_file(path) as file:
                number, records = 0, framing.read_open(file, path)
                for examples in _batches(itertools.islice(records, self._max_records)):
                    if not number and not self._know_kind(path, examples[0]):
                        return
                    self._add(path, number, examples)
                    number += len(examples)
                    progress.advance(file.tell() - position)
                    position = file.tell()
            self._check_number(path, number)
        except UserError as error:
            self.violations.add("damaged files", str(error))
        finally:
            progress.advance(size - position, already_done=True)

    def _know_kind(self, path, example):
        """Whether the kind of a file's records is known and is that of the first file."""
        options = self._options_of(path, example)
        if options is None:
            return False
        is_described = path in self.descriptions
        self._of_file = make_inspector(options, self.vocabulary, is_described)
        if self.inspector is None:
            self.inspector = self._of_file
            self.statistics = Statistics(self.inspector)
        elif self.inspector.instances.schema() != self._of_file.instances.schema():
            self.violations.add(
                "files of another kind",
                f"{path}: contains records of a different kind than the files before it, "
                "so the rest was not read; inspect it separately",
            )
            return False
        return True

    def _options_of(self, path, example):
        """The flags of a file's records, as far as they are known."""
        if path in self.descriptions:
            options = RowOptions.of(self.descriptions[path])
            share = self._masked_lm_prob or options.masked_lm_prob
        elif self.inspector:
            options, share = self.inspector.options, self._masked_lm_prob or 0
        else:
            options, share = self._foreign(path, example), self._masked_lm_prob or 0
        return options and dataclasses.replace(options, masked_lm_prob=share)

    def _foreign(self, path, example):
        """The flags of records without a description, as far as one of them shows it."""
        lengths = {}
        try:
            schema = encoding.schema_of(example)
            lengths = {feature.name: feature.length for feature in schema}
            names = ", ".join(lengths)
            problem = f"has the features {names}" if names else "has no features"
        except ValueError:
            problem = "is not a tf.train.Example"
        if {"input_ids", "masked_lm_ids"} <= lengths.keys():
            return RowOptions.of_release(
                lambda rows: {label.name for label in rows.labels()} <= lengths.keys(),
                max_seq_length=lengths["input_ids"],
                max_predictions_per_seq=lengths["masked_lm_ids"],
            )
        self.violations.add(
            "foreign files",
            f"{path}: record 1 {problem}; it is not a pre-training record, so the rest of "
            "the file was not read",
        )
        return None

    def _add(self, path, number, examples):
        inspector = self._of_file
        batch, faults = encoding.decode(examples, inspector.instances.schema())
        text = inspector.masks.unmask(batch)
        problems = first_broken(batch, text, inspector)
        problems |= {row: ("another schema", fault) for row, fault in faults.items()}
        for row, (rule, line) in sorted(problems.items()):
            self.violations.add(rule, f"{path}: record {number + row + 1}: {line}")
        self.num_records += len(examples)
        self._keep_shown(path, number, batch, faults)
        sound = [row for row in range(len(examples)) if row not in problems]
        if problems:
            batch = {name: values[sound] for name, values in batch.items()}
            text = text.of_rows(sound)
        if sound:
            self.statistics.add(batch, text, inspector.options)
        described = self.descriptions.get(path)
        self._sums[described and described.path].update(
            instances=len(sound),
            instance_tokens=int(text.lengths.sum()),
            predictions=int(text.is_predicted.sum()),
            **inspector.sums(batch),
        )

    def _keep_shown(self, path, number, batch, faults):
        for row in range(len(batch["input_ids"])):
            if len(self.shown) >= self._num_shown:
                return
            if row not in faults:
                record = {name: values[row].copy() for name, values in batch.items()}
                self.shown.append((f"{path}: record {number + row + 1}", record))

    def _check_number(self, path, number):
        if not number:
            self.violations.add("empty files", f"{path}: contains no records")
        elif not self._max_records:
            description = self.descriptions.get(path)
            described = description and description.output(path)["instances"]
            if described is not None and number != described:
                self.violations.add(
                    "other numbers of records than described",
                    f"{path}: contains {number:,} records, but its description says "
                    f"{described:,}",
                )

    def _compare_sums(self, description):
        """Compares with the description's counts, if all of its records were read."""
        counts, sums = description.counts, self._sums[description.path]
        if sums["instances"] != counts["instances"]:
            return
        for name in sums:
            if sums[name] != counts.get(name, 0):
                self.violations.add(
                    "other sums than described",
                    f"{description.path}: says {counts.get(name, 0):,} {name}, but the "
                    f"records have {sums[name]:,}",
                )


def _check_vocabulary(path, description, vocabulary):
    if description.vocab_sha256 != vocabulary.digest:
        raise UserError(
            f"{path}: was made with a different vocabulary than {vocabulary.path} "
            f"({description.vocab_size:,} tokens there, {len(vocabulary):,} here); use "
            f"--vocab_file={description.flags['vocab_file']} or its current path"
        )


def _batches(examples):
    """Yields lists of examples, including those before a damaged one."""
    batch, damage = [], None
    try:
        for example in examples:
            batch.append(example)
            if len(batch) == _BATCH_ROWS:
                yield batch
                batch = []
    except UserError as error:
        damage = error
    if batch:
        yield batch
    if damage:
        raise damage
