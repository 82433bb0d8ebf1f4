"""Lists the tasks of GLUE and XNLI with their files, columns, labels and scores."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from errors import UserError
from files import tables


class Table(NamedTuple):
    """A file and the columns to take, by name, or by number if it has no header.

    In JSON, "labels.score" is the score within labels. `rows` makes rows of these columns
    of a line, where it is not one itself.
    """

    file: str
    text_a: str | int
    text_b: str | int | None = None
    label: str | int | None = None
    header: bool = True
    where: tuple[str, str] | None = None  # column and value of the lines to use
    more_files: tuple[str, ...] = ()  # with the same columns
    rows: Callable[[Mapping], Iterable[Mapping]] | None = None

    def read(
        self,
        path: str,
        *,
        skip_bad_lines: bool = False,
        max_line_mb: int | None = None,
    ) -> Iterator[tuple[str, Mapping]]:
        """Yields rows, each with its place in the file; see `tables.read`.

        Raises:
            UserError: a line is not of this form.
        """
        lines = tables.read(
            path,
            self.header,
            skip_bad_lines=skip_bad_lines,
            max_line_mb=max_line_mb,
        )
        for number, values in lines:
            where = f"{path}:{number}"
            if self.rows is None:
                yield where, values
                continue
            try:
                rows = list(self.rows(values))
            except (LookupError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{where}: is not a line of this task ({error!r}); check --task_name "
                    "and --data_dir"
                ) from error
            yield from ((where, row) for row in rows)


class DataSet(NamedTuple):
    """One row of the table of tasks."""

    train: Table | None
    dev: dict[str, Table]
    test: dict[str, Table]
    labels: tuple[str, ...] | None  # None: numbers
    scores: tuple[str, ...]  # names in metrics.FUNCTIONS; the first compares runs
    server: dict[str, str]  # the GLUE server's name for the answers to a test set
    relabel: dict[str, str] = {}  # other spellings of labels
    bounds: tuple[float, float] | None = None  # of numbers
    label_names: tuple[str, ...] = ()  # what people call the labels, if files do not

    @property
    def has_pairs(self) -> bool:
        return next(iter(self.test.values())).text_b is not None

    def table(self, split: str) -> Table:
        """The table of "train", or of a dev or test set."""
        return self.train if split == "train" else (self.dev | self.test)[split]

    def server_lines(self, answers: Iterable[tuple[str, Mapping]]) -> Iterator[str]:
        """A file for gluebenchmark.com, of (index, {"predicted": ...}) of a test set's
        examples.
        """
        yield "index\tprediction"
        for index, answer in answers:
            predicted = answer["predicted"]
            if isinstance(predicted, float):
                lowest, highest = self.bounds
                predicted = f"{min(max(predicted, lowest), highest):.3f}"
            yield f"{index}\t{predicted}"


def _glue(text_a, text_b, label, labels, scores, server) -> DataSet:
    """A task with the files train.tsv, dev.tsv and test.tsv, which have headers."""
    return DataSet(
        Table("train.tsv", text_a, text_b, label),
        {"dev": Table("dev.tsv", text_a, text_b, label)},
        {"test": Table("test.tsv", text_a, text_b)},
        labels,
        scores,
        {"test": server},
    )


_BINARY = ("0", "1")
NLI_LABELS = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")

# Metrics are those of GLUE (arXiv:1804.07461); labels are in the release's order. Names of
# labels are those of Hugging Face's data set "glue".
TASKS = {
    "cola": DataSet(
        Table("train.tsv", 3, None, 1, header=False),
        {"dev": Table("dev.tsv", 3, None, 1, header=False)},
        {"test": Table("test.tsv", "sentence")},
        _BINARY,
        ("matthews", "accuracy"),
        {"test": "CoLA"},
        label_names=("unacceptable", "acceptable"),
    ),
    "sst-2": _glue("sentence", None, "label", _BINARY, ("accuracy",), "SST-2")._replace(
        label_names=("negative", "positive")
    ),
    "mrpc": _glue(
        "#1 String", "#2 String", "Quality", _BINARY, ("accuracy", "f1"), "MRPC"
    )._replace(label_names=("not_equivalent", "equivalent")),
    "sts-b": _glue(*_PAIR, "score", None, ("spearman", "pearson"), "STS-B")._replace(
        bounds=(0.0, 5.0)
    ),
    "qqp": _glue(
        "question1", "question2", "is_duplicate", _BINARY, ("f1", "accuracy"), "QQP"
    )._replace(label_names=("not_duplicate", "duplicate")),
    "mnli": DataSet(
        Table("train.tsv", *_PAIR, "gold_label"),
        {
            "dev_matched": Table("dev_matched.tsv", *_PAIR, "gold_label"),
            "dev_mismatched": Table("dev_mismatched.tsv", *_PAIR, "gold_label"),
        },
        {
            "test_matched": Table("test_matched.tsv", *_PAIR),
            "test_mismatched": Table("test_mismatched.tsv", *_PAIR),
        },
        NLI_LABELS,
        ("accuracy",),
        {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"},
    ),
    "qnli": _glue("question", "sentence", "label", _ENTAILMENT, ("accuracy",), "QNLI"),
    "rte": _glue(*_PAIR, "label", _ENTAILMENT, ("accuracy",), "RTE"),
    "wnli": _glue(*_PAIR, "label", _BINARY, ("accuracy",), "WNLI")._replace(
        label_names=("not_entailment", "entailment")
    ),
    # Answered by a model trained on MNLI.
    "ax": DataSet(
        None,
        {},
        {"ax": Table("diagnostic.tsv", *_PAIR)},
        NLI_LABELS,
        ("matthews",),
        {"ax": "AX"},
    ),
}


def xnli(language: str) -> DataSet:
    """As in the release: trained on MNLI in this language, evaluated on XNLI's dev set."""
    column = ("language", language)
    return DataSet(
        Table(f"multinli/multinli.train.{language}.tsv", "premise", "hypo", "label"),
        {"dev": Table("xnli.dev.tsv", *_PAIR, "gold_label", where=column)},
        {"test": Table("xnli.test.tsv", *_PAIR, "gold_label", where=column)},
        NLI_LABELS,
        ("accuracy",),
        {},
        relabel={"contradictory": "contradiction"},
    )
