"""Fine-tunes an encoder to classify or rate texts and pairs of texts.

    python run_classifier.py --task_name=MRPC --do_train --do_eval \\
        --data_dir=glue/MRPC --output_dir=mrpc_output \\
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \\
        --learning_rate=2e-5 --num_train_epochs=3

This command reaches an accuracy of 84 to 88 % on the dev set (2018 README, BERT-Base).
For your own data, use --task_name=custom: files with columns, see --help.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
from typing import NamedTuple

import numpy as np

import options
import training  # noqa: F401  TensorFlow before Keras, so that it is quiet
from modeling.objectives import tasks
from text.errors import UserError
from text.files import local, tables
from text.instances import packing
from text.instances.pack_graph import pack
from text.records.rows import Field, Row
from text.tasks.in_parts import in_parts
from training import metrics, run, run_folder
from training.finetuning import finetune
from training.finetuning.task import Judgement, ServedTask

# isort: split
import tensorflow as tf

_SAMPLES = (
    "A wonderful little production.",
    "",
    "Zürich, ΑΘΗΝΑ, Москва",
    "東京は大きい 서울은 크다 \u200b",
    "one of many words " * 200,
)

# === Data sets =======================================================================


class Table(NamedTuple):
    """A file and the columns to take: by name, or by number where it has no header."""

    file: str
    text_a: str | int
    text_b: str | int | None = None
    label: str | int | None = None
    header: bool = True
    where: tuple[str, str] | None = None  # column and value of the lines to take


class DataSet(NamedTuple):
    """One row of the table of tasks."""

    train: Table | None
    dev: dict[str, Table]
    test: dict[str, Table]
    labels: tuple[str, ...] | None  # None: numbers
    scores: tuple[str, ...]  # the first is what runs are compared by
    server: dict[str, str]  # the GLUE server's name for the answers to a test set
    relabel: dict[str, str] = {}  # other spellings of labels
    bounds: tuple[float, float] | None = None  # of numbers

    @property
    def has_pairs(self) -> bool:
        return next(iter(self.test.values())).text_b is not None


def _glue(text_a, text_b, label, labels, scores, server) -> DataSet:
    """A set with headers and the files train.tsv, dev.tsv and test.tsv."""
    return DataSet(
        Table("train.tsv", text_a, text_b, label),
        {"dev": Table("dev.tsv", text_a, text_b, label)},
        {"test": Table("test.tsv", text_a, text_b)},
        labels,
        scores,
        {"test": server},
    )


_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_LARGEST = float(np.finfo(np.float32).max)
_WRITTEN = ("test_results.tsv", "predictions.jsonl")
_NO_LABEL = "(no label)"
_MOST_NAMED = 20  # labels of which the log says how often they are
# float() reads 1_000 too, and the digits of every script.
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_AX = Table("diagnostic.tsv", *_PAIR)

# Metrics are those of GLUE (arXiv:1804.07461); labels stand in the release's order.
TASKS = {
    "cola": DataSet(
        Table("train.tsv", 3, None, 1, header=False),
        {"dev": Table("dev.tsv", 3, None, 1, header=False)},
        {"test": Table("test.tsv", "sentence")},
        _BINARY,
        ("matthews", "accuracy"),
        {"test": "CoLA"},
    ),
    "sst-2": _glue("sentence", None, "label", _BINARY, ("accuracy",), "SST-2"),
    "mrpc": _glue(
        "#1 String", "#2 String", "Quality", _BINARY, ("accuracy", "f1"), "MRPC"
    ),
    "sts-b": _glue(*_PAIR, "score", None, ("spearman", "pearson"), "STS-B")._replace(
        bounds=(0.0, 5.0)
    ),
    "qqp": _glue(
        "question1", "question2", "is_duplicate", _BINARY, ("f1", "accuracy"), "QQP"
    ),
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
        _NLI,
        ("accuracy",),
        {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"},
    ),
    "qnli": _glue("question", "sentence", "label", _ENTAILMENT, ("accuracy",), "QNLI"),
    "rte": _glue(*_PAIR, "label", _ENTAILMENT, ("accuracy",), "RTE"),
    "wnli": _glue(*_PAIR, "label", _BINARY, ("accuracy",), "WNLI"),
    # Answered by a model of MNLI.
    "ax": DataSet(None, {}, {"ax": _AX}, _NLI, ("matthews",), {"ax": "AX"}),
}


def _xnli(language: str) -> DataSet:
    """As the release: trained on MNLI in this language, evaluated on XNLI's dev set."""
    return DataSet(
        Table(f"multinli/multinli.train.{language}.tsv", "premise", "hypo", "label"),
        {
            "dev": Table(
                "xnli.dev.tsv", *_PAIR, "gold_label", where=("language", language)
            )
        },
        {
            "test": Table(
                "xnli.test.tsv", *_PAIR, "gold_label", where=("language", language)
            )
        },
        _NLI,
        ("accuracy",),
        {},
        relabel={"contradictory": "contradiction"},
    )


_CUSTOM = (
    "train_file",
    "dev_file",
    "test_file",
    "text_a_column",
    "text_b_column",
    "label_column",
    "label_kind",
    "label_separator",
    "labels",
)


@dataclasses.dataclass(frozen=True)
class Options(finetune.FineTuningOptions):
    data_dir: str = options.field(help="Folder of the task's files.")
    task_name: str = options.field(
        help=f"One of {', '.join(TASKS)}, xnli (any case), or custom: your own files."
    )
    xnli_language: str = options.field("zh", help="Which of XNLI's languages to use.")

    train_file: str = options.field(
        "train.tsv",
        help="custom: training set, in data_dir. The suffix gives the format: .tsv (with "
        "a header; quotes are plain characters), .csv (with a header) or .jsonl (one "
        "object per line).",
    )
    dev_file: str = options.field("dev.tsv", help="custom: dev set.")
    test_file: str = options.field(
        "test.tsv", help="custom: test set; labels optional."
    )
    text_a_column: str = options.field("text", help="custom: column of the text.")
    text_b_column: str | None = options.field(
        None, help="custom: column of the second text of a pair."
    )
    label_column: str = options.field("label", help="custom: column of the label.")
    label_kind: str = options.field(
        "single",
        choices=("single", "several", "number"),
        help="custom: one label per text, several (a JSON list, or separated by "
        "--label_separator), or a number to predict.",
    )
    skip_bad_lines: bool = options.field(
        False,
        help="Skip and count lines whose number of columns differs from the first line, "
        "instead of refusing the file; QQP's training set has some.",
    )
    label_separator: str = options.field(
        ",", help="custom: separator between the labels of a text."
    )
    labels: list[str] = options.field(
        [],
        help="custom: all labels, in order; by default, those of the training set, "
        "sorted.",
    )

    def __post_init__(self):
        if self.task_name.lower() not in (*TASKS, "xnli", "custom"):
            raise UserError(
                f"--task_name={self.task_name}: not one of {', '.join(TASKS)}, xnli, custom"
            )
        if len(set(self.labels)) < len(self.labels) or "" in self.labels:
            raise UserError(
                f"--labels={','.join(self.labels)}: empty or repeated labels"
            )
        if len(self.labels) == 1 and self.label_kind == "single":
            raise UserError(f"--labels={self.labels[0]}: give two at least")
        if not self.label_separator:
            raise UserError("--label_separator: must not be empty")
        if self.max_seq_length < 3:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 3"
            )
        if self.is_custom and self.do_predict:
            names = (self.train_file, self.dev_file, self.test_file)
            local.refuse_inputs(
                [os.path.join(self.output_dir, name) for name in _WRITTEN],
                [os.path.join(self.data_dir, name) for name in names],
            )
        if not self.is_custom:
            self._refuse_custom_flags()
        super().__post_init__()

    @property
    def data_set(self) -> DataSet:
        name = self.task_name.lower()
        if name == "xnli":
            return _xnli(self.xnli_language)
        return TASKS[name] if name in TASKS else self._custom()

    @property
    def is_custom(self) -> bool:
        return self.task_name.lower() == "custom"

    @property
    def has_several_labels(self) -> bool:
        return self.is_custom and self.label_kind == "several"

    def _refuse_custom_flags(self):
        """They would have no effect, though they look as if."""
        for field in dataclasses.fields(self):
            if field.name in _CUSTOM and getattr(self, field.name) != _default(field):
                raise UserError(
                    f"--{field.name} is for --task_name=custom alone, and has no effect on "
                    f"{self.task_name}; leave it out"
                )

    def _custom(self) -> DataSet:
        columns = (self.text_a_column, self.text_b_column, self.label_column)
        return DataSet(
            Table(self.train_file, *columns),
            {"dev": Table(self.dev_file, *columns)},
            {"test": Table(self.test_file, *columns)},
            None if self.label_kind == "number" else tuple(self.labels),
            {
                "single": ("accuracy", "f1_macro", "matthews"),
                "several": ("f1_micro", "f1_macro", "exact_match"),
                "number": ("spearman", "pearson", "mean_squared_error"),
            }[self.label_kind],
            {},
        )


# === Reading =========================================================================


class Example(NamedTuple):
    """One text or pair; the label is a string, a tuple of them, a number, or None."""

    text_a: str
    text_b: str | None
    label: str | tuple[str, ...] | float | None
    index: str  # of its line, what the GLUE server knows it by; else its number from 0


# === The task ========================================================================


class Classifier(ServedTask):
    """Single texts and pairs: one label, several, or a number."""

    def __init__(self, given: Options, tokenizer):
        super().__init__(tokenizer)
        self.given = given
        self.data = given.data_set
        self.labels = self.data.labels
        self.several = given.has_several_labels
        self.has_classes = self.labels is not None
        self.metric = self.data.scores[0]
        self.eval_sets = tuple(self.data.dev)
        self.test_sets = tuple(self.data.test)
        if self.data.train is None and (given.do_train or given.do_eval):
            raise UserError(
                f"--task_name={given.task_name} has a test set only; train on MNLI, and "
                "give --do_predict alone, with --init_checkpoint"
            )

    @property
    def labels(self):
        """In their order; () while none are known, None where there are numbers."""
        return self._labels

    @labels.setter
    def labels(self, labels):
        self._labels = labels
        self._numbers = {label: number for number, label in enumerate(labels or ())}

    # --- Files -----------------------------------------------------------------------

    def read(self, split):
        table = (
            self.data.train
            if split == "train"
            else (self.data.dev | self.data.test)[split]
        )
        path = os.path.join(self.given.data_dir, table.file)
        needs_label = split not in self.data.test
        # Of several labels, "" is none of them.
        unlabelled = (None,) if self.several else (None, "")
        examples = []
        skip = self.given.skip_bad_lines
        for number, values in tables.read(path, table.header, skip_bad_lines=skip):
            where = f"{path}:{number}"
            if table.where and _cell(values, table.where[0], where) != table.where[1]:
                continue
            label = None
            if needs_label or values.get(table.label) not in unlabelled:
                label = self._label(_cell(values, table.label, where), where, split)
            text_a, text_b = (
                None if column is None else _text(values, column, where)
                for column in (table.text_a, table.text_b)
            )
            index = values.get("index", values.get("id", len(examples)))
            examples.append(Example(text_a, text_b, label, str(index)))
        if not examples:
            raise UserError(f"{path}: no line of it is an example")
        if split == "train" and self.labels == ():
            self.labels = _collect(examples, path)
        return examples

    def _label(self, value, where, split):
        if self.labels is None:
            return _number(value, self.data.bounds, where)
        values = self._several(value, where) if self.several else [value]
        labels = [_class_name(value, where) for value in values]
        labels = [self.data.relabel.get(label, label) for label in labels]
        if not self.labels and split != "train":
            raise UserError(
                f"{where}: no labels are known, for {self.given.output_dir} holds no "
                "model; give --do_train, another --output_dir, or --labels"
            )
        if "" in labels:
            raise UserError(f"{where}: no label; give one, or leave the line out")
        for label in labels:
            if self.labels and label not in self._numbers:
                raise UserError(
                    f"{where}: label {label!r:.40} is not one of {_some(self.labels)}; "
                    "another --task_name, another column, or give all in --labels?"
                )
        return tuple(labels) if self.several else labels[0]

    def _several(self, value, where):
        if isinstance(value, str):
            return [
                part for part in value.split(self.given.label_separator) if part.strip()
            ]
        if isinstance(value, list):
            return value
        raise UserError(
            f"{where}: {value!r:.40} is neither a list of labels nor a text"
        )

    def settings(self):
        return {"labels": self.labels}

    def state(self):
        several = {"several_labels": True} if self.several else {}
        return {"labels": self.labels, **several}

    def restore(self, state):
        known = state.get("labels")
        if known and state.get("several_labels", False) != self.several:
            raise UserError(
                "the model was trained with another --label_kind; give the same"
            )
        if self.labels == () and known:
            self.labels = tuple(known)
        elif known is not None and tuple(known) != self.labels:
            hint = "another --task_name, --output_dir or --init_checkpoint?"
            if self.given.is_custom:
                hint = "leave --labels out, or give these"
            raise UserError(
                f"the model was trained for the labels {_some(known)} in this order, "
                f"not for {_some(self.labels or ['numbers'])}; {hint}"
            )

    # --- Rows ------------------------------------------------------------------------

    @property
    def fields(self):
        real = {"is_real_example": Field()}  # the release's records have it
        if self.labels is None:
            return {"label_values": Field("float32"), **real}
        shape = (len(self.labels),) if self.several else ()
        return {"label_ids": Field("int64", shape), **real}

    def featurize(self, example, split):
        encode = self.tokenizer.encode
        text_b = None if example.text_b is None else encode(example.text_b)
        ids, segments, was_cut = packing.pack(
            self.tokenizer.vocabulary,
            encode(example.text_a),
            text_b,
            self.given.max_seq_length,
        )
        self.counts["were cut to --max_seq_length"] += was_cut
        if split == "train" and self.labels and len(self.labels) <= _MOST_NAMED:
            for label in _as_tuple(example.label):
                self.counts[f"labelled {label}"] += 1
        gold = np.zeros(1) if example.label is None else self._gold([example])
        name = "label_values" if self.labels is None else "label_ids"
        yield Row(ids, segments, {name: gold[0], "is_real_example": 1})

    def objective(self):
        if self.labels is None:
            return tasks.Regression()
        kind = tasks.MultiLabel if self.several else tasks.Classification
        return kind(len(self.labels))

    def _gold(self, examples):
        """[n] class numbers, [n, labels] of 0 and 1, or [n] numbers."""
        if self.labels is None:
            return np.array([example.label for example in examples])
        if self.several:
            gold = np.zeros((len(examples), len(self.labels)), int)
            for row, example in zip(gold, examples, strict=True):
                row[[self._numbers[label] for label in example.label]] = 1
            return gold
        return np.array([self._numbers[example.label] for example in examples])

    # --- Numbers ---------------------------------------------------------------------

    def score(self, predictions):
        return self._scores(
            self._gold(predictions.examples), self._predicted(predictions.outputs)
        )

    def _scores(self, gold, predicted):
        functions = {
            "accuracy": metrics.accuracy,
            "matthews": metrics.matthews,
            "f1": metrics.f1,
            "f1_macro": lambda *pair: metrics.f1(*pair, average="macro"),
            "f1_micro": lambda *pair: metrics.f1(*pair, average="micro"),
            "exact_match": lambda a, b: float(np.mean((a == b).all(axis=1))),
            "pearson": metrics.pearson,
            "spearman": metrics.spearman,
            "mean_squared_error": lambda a, b: float(np.mean((a - b) ** 2)),
        }
        return {name: functions[name](gold, predicted) for name in self.data.scores}

    def _predicted(self, outputs):
        logits = outputs["logits"]
        if self.labels is None:
            return logits[:, 0]
        return (logits > 0).astype(int) if self.several else logits.argmax(axis=1)

    def trivial_score(self, examples):
        gold = self._gold(examples)
        if self.labels is None:
            same = [np.full(len(gold), gold.mean())]
        elif self.several:  # micro F1 of the most frequent labels, as many as are best
            counts = np.sort(gold.sum(axis=0))[::-1]
            given = len(gold) * np.arange(1, len(counts) + 1)
            return float(np.max(2 * np.cumsum(counts) / (given + counts.sum())))
        elif self.metric == "accuracy":
            return float(np.bincount(gold).max() / len(gold))
        else:
            same = [np.full(len(gold), label) for label in range(len(self.labels))]
        return max(self._scores(gold, answer)[self.metric] for answer in same)

    def judge(self, predictions):
        if predictions.examples[0].label is None:
            return []
        judgements = []
        for example, answer in zip(
            predictions.examples, self.answers(predictions), strict=True
        ):
            predicted = answer["predicted"]
            if self.labels is None:
                loss, gold = abs(predicted - example.label), f"{example.label:g}"
                predicted = f"{predicted:.3f}"
            else:
                gold, predicted = _as_tuple(example.label), _as_tuple(predicted)
                chances = answer["probabilities"]
                loss = -sum(
                    math.log(max(chances[k] if k in gold else 1 - chances[k], 1e-12))
                    for k in (chances if self.several else gold)
                )
                gold = ", ".join(sorted(set(gold), key=self._numbers.get)) or _NO_LABEL
                predicted = ", ".join(predicted) or _NO_LABEL
            text = "\n".join(filter(None, (example.text_a, example.text_b)))
            judgements.append(Judgement(text, gold, predicted, loss))
        return judgements

    # --- Answers ---------------------------------------------------------------------

    @property
    def form(self):
        if self.labels is None:
            return "number"
        return "labels" if self.several else "label"

    def answers(self, predictions):
        logits = predictions.outputs["logits"]
        if self.labels is None:
            return [{"predicted": float(value)} for value in logits[:, 0]]
        chances = metrics.sigmoid(logits) if self.several else metrics.softmax(logits)
        answers = []
        for row in chances.tolist():
            by_label = dict(zip(self.labels, row, strict=True))
            if self.several:
                predicted = [k for k, chance in by_label.items() if chance > 0.5]
            else:
                predicted = self.labels[int(np.argmax(row))]
            answers.append({"predicted": predicted, "probabilities": by_label})
        return answers

    def write_predictions(self, predictions, directory):
        examples, answers = predictions.examples, self.answers(predictions)
        split = predictions.split
        ending = "" if split == self.test_sets[0] else f"_{split}"
        contents = {
            f"test_results{ending}.tsv": map(_release_line, answers),
            f"predictions{ending}.jsonl": map(_json_line, examples, answers),
        }
        if split in self.data.server:
            name = f"{self.data.server[split]}.tsv"
            contents[name] = _server_lines(examples, answers, self.data.bounds)
        paths = []
        for name, lines in contents.items():
            paths.append(os.path.join(directory, name))
            run_folder.write_file(paths[-1], "".join(f"{line}\n" for line in lines))
        return paths

    # --- Export ----------------------------------------------------------------------

    @property
    def inputs(self):
        return {name: "text" for name in self.request(self.samples()[0])}

    def description(self):
        table = next(iter(self.data.test.values()))
        texts = [name for name in (table.text_a, table.text_b) if name is not None]
        return {
            **super().description(),
            "columns": dict(zip(self.inputs, texts, strict=True)),
        }

    def samples(self):
        texts = zip(_SAMPLES, reversed(_SAMPLES), strict=True)
        has_pairs = self.data.has_pairs
        return [Example(a, b if has_pairs else None, None, "") for a, b in texts]

    def request(self, example):
        if example.text_b is None:
            return {"text": example.text_a}
        return {"text_a": example.text_a, "text_b": example.text_b}

    def serve(self, tokenizer, predict, **texts):
        ids = [tokenizer.encode(texts[name]) for name in self.inputs]
        text_a, text_b = ids if len(ids) == 2 else (*ids, None)
        batch = pack(tokenizer, text_a, text_b, self.given.max_seq_length)
        logits = in_parts(predict, batch)["logits"]
        if self.labels is None:
            return {"predicted": logits[:, 0]}
        labels = tf.repeat([self.labels], tf.shape(logits)[0], axis=0)
        if self.several:
            chances = tf.sigmoid(logits)
            predicted = tf.where(chances > 0.5, labels, "")
        else:
            chances = tf.nn.softmax(logits)
            predicted = tf.gather(self.labels, tf.argmax(logits, axis=1))
        return {"predicted": predicted, "labels": labels, "probabilities": chances}


def _default(field):
    made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if made else field.default


def _cell(values, column, where):
    if column not in values:
        names = ", ".join(map(str, values))
        raise UserError(
            f"{where}: no column {column!r} among {names}; another --task_name, or another "
            "--*_column?"
        )
    return values[column]


def _text(values, column, where):
    text = _cell(values, column, where)
    if not isinstance(text, str):
        raise UserError(f"{where}: {column!r} is no text, but {text!r:.40}")
    return text


def _number(value, bounds, where):
    is_written = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
    number = math.nan
    if is_written or type(value) in (int, float):  # isinstance takes true for 1
        with contextlib.suppress(OverflowError):  # an integer beyond all floats
            number = float(value)
    lowest, highest = bounds or (-_LARGEST, _LARGEST)
    if not lowest <= number <= highest:
        allowed = f"from {lowest:g} to {highest:g}" if bounds else "that float32 holds"
        raise UserError(f"{where}: label {value!r:.40} is no number {allowed}")
    return number


def _class_name(value, where):
    """A label as text; JSON may have it as a whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(
            f"{where}: label {value!r:.40} is neither a text nor a whole number"
        )
    return str(value).strip()


def _some(labels):
    more = ", ..." if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def _as_tuple(label):
    return (label,) if isinstance(label, str) else label


def _collect(examples, path):
    """The labels of a training set, sorted."""
    found = sorted({label for e in examples for label in _as_tuple(e.label)})
    if len(found) < 2:
        raise UserError(
            f"{path}: all labels are {found}; there must be two at least; another "
            "--label_column?"
        )
    return tuple(found)


def _release_line(answer):
    if "probabilities" not in answer:
        return str(answer["predicted"])
    return "\t".join(map(str, answer["probabilities"].values()))


def _json_line(example, answer):
    values = {"index": example.index}
    if example.text_b is None:
        values |= {"text": example.text_a}
    else:
        values |= {"text_a": example.text_a, "text_b": example.text_b}
    if example.label is not None:
        values["gold"] = example.label
    return json.dumps(values | answer, ensure_ascii=False)


def _server_lines(examples, answers, bounds):
    """As gluebenchmark.com takes them."""
    yield "index\tprediction"
    for example, answer in zip(examples, answers, strict=True):
        predicted = answer["predicted"]
        if isinstance(predicted, float):
            lowest, highest = bounds
            predicted = f"{min(max(predicted, lowest), highest):.3f}"
        yield f"{example.index}\t{predicted}"


def main(given: Options) -> None:
    """Runs what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not fit each other.
    """
    task = Classifier(given, run.make_tokenizer(given))
    finetune.finetune(task, given)


if __name__ == "__main__":
    options.run(main, Options)
