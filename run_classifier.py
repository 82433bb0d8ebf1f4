"""Fine-tunes an encoder to classify or rate texts and pairs of texts.

    python run_classifier.py --task_name=MRPC --do_train --do_eval \\
        --data_dir=glue/MRPC --output_dir=mrpc_output \\
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \\
        --learning_rate=2e-5 --num_train_epochs=3

This command reaches an accuracy of 84 to 88 % on the dev set (2018 README, BERT-Base).
For your own data, use --task_name=custom: files with columns, see --helpfull.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

import command_line
import options
from errors import UserError
from files import local, tables
from text.instances import packing, text_windows
from text.tasks import glue, korean, superglue
from training.finetuning.label_options import LabelOptions
from training.finetuning.options import PooledOptions

_TASKS = {**glue.TASKS, **korean.TASKS, **superglue.TASKS}
_COLUMNS = "--task_name and the --*_column flags"
_cell = functools.partial(tables.cell, flags=_COLUMNS)
_text = functools.partial(tables.text, flags=_COLUMNS)
_INDEX_COLUMNS = ("index", "id", "guid")  # GLUE's, others', KLUE's
_WRITTEN = ("test_results.tsv", "predictions.jsonl")
_SCORES = {  # of a user's own labels, by --label_kind
    "single": ("accuracy", "f1_macro", "matthews"),
    "several": ("f1_micro", "f1_macro", "exact_match"),
    "number": ("spearman", "pearson", "mean_squared_error"),
}


_custom_field = functools.partial(options.field, only_for={"task_name": "custom"})


@dataclasses.dataclass(frozen=True)
class Options(LabelOptions, PooledOptions):
    data_dir: str = options.field(help="Folder of the task's files.")
    task_name: str = options.field(
        help=f"One of {', '.join(_TASKS)}, xnli (any case), or custom: your own files."
    )
    xnli_language: str = options.field(
        "zh", help="Which of XNLI's languages to use.", only_for={"task_name": "xnli"}
    )

    train_file: str = _custom_field(
        "train.tsv",
        help="custom: training set, in data_dir. The suffix gives the format: .tsv (with "
        "a header; quotes are plain characters), .csv (with a header), .jsonl or .json "
        "(one object per line, or one list of objects).",
    )
    dev_file: str = _custom_field("dev.tsv", help="custom: dev set.")
    test_file: str = _custom_field(
        "test.tsv",
        help="custom: test set; labels optional.",
    )
    text_a_column: str = _custom_field(
        "text", help="custom: column of the text; in JSON, a.b is the b within a."
    )
    text_b_column: str | None = _custom_field(
        None,
        help="custom: column of the second text of a pair.",
    )
    label_column: str = _custom_field("label", help="custom: column of the label.")
    label_kind: str = _custom_field(
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
    both_orders: bool = options.field(
        False,
        help="Read every pair in both orders, and add what the head reads of each; for "
        "similarity with an encoder that reads from left to right.",
        only_for={"distill_from": options.ABSENT},
    )
    doc_stride: int | None = options.field(
        None,
        help="Read a text that is longer than --max_seq_length in windows, this many "
        "tokens from the start of one to the next, instead of cutting it. Training takes "
        "each for an example with the label of its text; answers to a text are pooled.",
        at_least=1,
        identity=True,
        only_for={"distill_from": options.ABSENT},
    )
    window_pooling: str = options.field(
        "mean",
        choices=text_windows.POOLINGS,
        help="What the logits of a text are: the mean over its windows, the highest of "
        "each label, or those of the first window, the only one that is then read.",
        identity=True,
        only_for={"doc_stride": options.GIVEN},
    )
    calibrate: bool = options.field(
        False,
        help="Fit a temperature to the dev set, by which logits are divided for the "
        "probabilities in all files and in the export; report the expected calibration "
        "error without it and with it. Without --do_eval, that of the last evaluation.",
    )
    label_thresholds: bool = options.field(
        False,
        help="custom: for each label that a text may have, choose the probability above "
        "which it has it by the F1 of the dev set.",
        identity=True,
        only_for={
            "task_name": "custom",
            "label_kind": "several",
        },
    )
    label_separator: str = options.field(
        ",",
        help="custom: separator between the labels of a text.",
        only_for={"task_name": "custom", "label_kind": "several"},
    )
    labels: list[str] = options.field(
        [],
        help="custom: all labels, in order; by default, those of the training set, "
        "sorted.",
        only_for={"task_name": "custom", "label_kind": ("single", "several")},
        distinct=True,
    )
    label_names: list[str] = options.field(
        [],
        help="What people call the labels, in their order, such as negative,positive for 0 "
        "and 1: in exports, in Hugging Face's config.json and in mistakes.html. By "
        "default, GLUE's names or those that the model knows, otherwise the labels.",
        distinct=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task_name.lower() not in (*_TASKS, "xnli", "custom"):
            raise UserError(
                f"--task_name={self.task_name}: not one of {', '.join(_TASKS)}, xnli, "
                "custom"
            )
        if len(self.labels) == 1 and self.label_kind == "single":
            raise UserError(f"--labels={self.labels[0]}: list at least two")
        if self.label_names and self.data_set.labels is None:
            raise UserError(
                "--label_names: this task predicts a number, not labels; remove it"
            )
        for name in ("calibrate", "label_thresholds"):
            if getattr(self, name) and self.do_train and not self.do_eval:
                raise UserError(
                    f"--{name} has no effect without --do_eval; add it, or remove --{name}"
                )
        of_labels = self.label_loss_flags + ["--calibrate"] * self.calibrate
        if self.data_set.labels is None and of_labels:
            raise UserError(
                f"{of_labels[0]}: this task predicts a number, not labels; remove it"
            )
        if self.data_set.labels:
            self.check_class_weights(self.data_set.labels)
        tables.check_different(self, "text_a_column", "text_b_column", "label_column")
        if not self.label_separator:
            raise UserError("--label_separator: must not be empty")
        if self.max_seq_length < 3:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 3"
            )
        if self.doc_stride:
            self._check_windows()
        if self.both_orders and not self.data_set.has_pairs:
            raise UserError("--both_orders is for pairs of texts; remove it")
        if self.is_custom and self.do_predict:
            names = (self.train_file, self.dev_file, self.test_file)
            local.refuse_inputs(
                [os.path.join(self.output_dir, name) for name in _WRITTEN],
                [os.path.join(self.data_dir, name) for name in names],
            )

    def _check_windows(self):
        if self.data_set.has_pairs:
            raise UserError(
                "--doc_stride is for single texts, and this task has pairs; remove it"
            )
        if self.doc_stride >= self.window_length:
            raise UserError(
                f"--doc_stride={self.doc_stride}: must be below {self.window_length}, the "
                f"tokens of a window: --max_seq_length={self.max_seq_length} without "
                "[CLS] and [SEP]"
            )

    @property
    def window_length(self) -> int:
        """The most tokens of a single text in a row."""
        return self.max_seq_length - 2

    @property
    def data_set(self) -> glue.DataSet:
        name = self.task_name.lower()
        if name == "xnli":
            data = glue.xnli(self.xnli_language)
        else:
            data = _TASKS[name] if name in _TASKS else self._custom()
        if self.label_names:
            data = data._replace(label_names=tuple(self.label_names))
        return data

    @property
    def is_custom(self) -> bool:
        return self.task_name.lower() == "custom"

    def _custom(self) -> glue.DataSet:
        columns = (self.text_a_column, self.text_b_column, self.label_column)
        return glue.DataSet(
            glue.Table(self.train_file, *columns),
            {"dev": glue.Table(self.dev_file, *columns)},
            {"test": glue.Table(self.test_file, *columns)},
            None if self.label_kind == "number" else tuple(self.labels),
            _SCORES[self.label_kind],
            {},
        )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import metrics
from training.run.settle import TrainableModel
from modeling.objectives.label_loss import WithLabelLoss
from text.graphs import packing_graph, windows_graph
from text.graphs.row_chunks import run_in_chunks
from text.records.rows import Field, Row
from training.finetuning import calibration, finetune, labels, learned_labels
from training.finetuning.task import SAMPLE_TEXTS, Judgement, ServedTask

# === Reading =========================================================================


class Example(NamedTuple):
    """One text or pair; the label is a string, a tuple of them, a number, or None."""

    text_a: str
    text_b: str | None
    label: str | tuple[str, ...] | float | None
    index: str  # from its line, for the GLUE server; otherwise its number from 0


# === The task ========================================================================


class Classifier(ServedTask):
    """Single texts and pairs: one label, several, or a number.

    Args:
        continued: the `state` that the run in output_dir noted, if there is one.
    """

    def __init__(self, flags: Options, tokenizer, continued: Mapping = {}):
        super().__init__(
            tokenizer, flags.data_dir if flags.is_custom else flags.task_name
        )
        self.flags, self._continued = flags, continued
        self.data = flags.data_set
        several = flags.is_custom and flags.label_kind == "several"
        separator = flags.label_separator if several else None
        self.labels = labels.make(self.data, separator)
        self.training_labels = None  # as `Labels.encode` returns them
        self.has_classes = self.labels.names is not None
        self.form = self.labels.form
        self.metric = self.data.scores[0]
        self.eval_sets = tuple(self.data.dev)
        self.test_sets = tuple(self.data.test)
        if self.data.train is None and (flags.do_train or flags.do_eval):
            raise UserError(
                f"--task_name={flags.task_name} has only a test set; train on MNLI, then "
                "pass only --do_predict, with --init_checkpoint"
            )

    # --- Files -----------------------------------------------------------------------

    def read(self, split):
        flags, table = self.flags, self.data.table(split)
        names = [table.file, *table.more_files] if table.file else []
        paths = [os.path.join(flags.data_dir, name) for name in names]
        needs_label = split not in self.data.test
        if split == "train":
            needs_label = flags.needs_labels
        examples = []
        for path in paths:
            examples += self._read(path, table, needs_label)
        if split != "train":
            return examples
        for more in flags.unlabeled_file:
            examples += self._read(more, table._replace(label=None), needs_label=False)
        if self.labels.names == ():
            path = os.path.join(flags.data_dir, table.file)
            self.labels.learn([e.label for e in examples if e.label is not None], path)
        if flags.label_loss_flags:
            self.training_labels = self._gold(
                [e for e in examples if e.label is not None]
            )
        if not flags.label_names:
            learned_labels.keep_names(self.labels, self._continued)
        return examples

    def _read(self, path, table, needs_label):
        is_unknown = self.labels.names == () and table is not self.data.train
        examples = []
        skip = self.flags.skip_bad_lines
        most = self.flags.max_line_mb
        for where, values in table.read(path, skip_bad_lines=skip, max_line_mb=most):
            if table.where and _cell(values, table.where[0], where) != table.where[1]:
                continue
            label = None
            if (
                needs_label
                or tables.get(values, table.label) not in self.labels.unlabelled
            ):
                if is_unknown:
                    raise UserError(
                        f"{where}: no labels are known, because {self.flags.output_dir} "
                        "has no model; pass --do_train, another --output_dir, or --labels"
                    )
                label = self.labels.read(_cell(values, table.label, where), where)
            text_a, text_b = (
                None if column is None else _text(values, column, where)
                for column in (table.text_a, table.text_b)
            )
            named = (values[name] for name in _INDEX_COLUMNS if name in values)
            index = next(named, len(examples))
            examples.append(Example(text_a, text_b, label, str(index)))
        if not examples:
            raise UserError(f"{path}: contains no examples")
        return examples

    def settings(self):
        both = {"both_orders": self.flags.both_orders}
        return {"labels": self.labels.names, **both, **self._windows}

    def state(self):
        both = {"both_orders": True} if self.flags.both_orders else {}
        return learned_labels.state_of(self.labels) | both | self._windows

    @property
    def _windows(self):
        """How long texts are read; {} if they are cut."""
        flags = self.flags
        if not flags.doc_stride:
            return {}
        return {name: getattr(flags, name) for name in ("doc_stride", "window_pooling")}

    def restore(self, state):
        if state.keys().isdisjoint(("labels", "label_names")):
            return
        if state.get("both_orders", False) != self.flags.both_orders:
            flag = str(not self.flags.both_orders).lower()
            raise UserError(
                f"the model was trained otherwise; pass --both_orders={flag}"
            )
        if state.get("doc_stride"):
            self._check_windows_of(state)
        learned_labels.take_up(
            self.labels, state, self.flags.is_custom, bool(self.flags.label_names)
        )
        if any(self._fits.values()) and not self.flags.do_eval:
            folder = self.flags.output_dir
            recalled = calibration.recall(folder, self.labels.names, **self._fits)
            self.labels.calibration = recalled

    def _check_windows_of(self, state):
        if self.flags.distill_from:
            raise UserError(
                "the model reads long texts in windows, which a teacher cannot; train one "
                "without --doc_stride"
            )
        names = ("doc_stride", "window_pooling")
        if any(state.get(name) != getattr(self.flags, name) for name in names):
            needed = " ".join(f"--{name}={state.get(name)}" for name in names)
            raise UserError(
                f"the model was trained on windows of long texts; pass {needed}"
            )

    @property
    def _fits(self):
        """What evaluations fit."""
        flags = self.flags
        return {"temperature": flags.calibrate, "cuts": flags.label_thresholds}

    # --- Rows ------------------------------------------------------------------------

    @property
    def fields(self):
        # The release's records have is_real_example.
        return {self.labels.field_name: self.labels.field, "is_real_example": Field()}

    def layout(self, examples, max_seq_length):
        layout = super().layout(examples, max_seq_length)
        return dataclasses.replace(layout, num_choices=2 * self.flags.both_orders)

    def featurize(self, example, split):
        self.counts["are empty"] += not (example.text_a.strip() or example.text_b)
        if split == "train" and example.label is None:
            self.counts["have no label"] += 1
        elif split == "train" and len(self.labels.names or ()) <= labels.MOST_NAMED:
            shown = self.labels.with_display_names
            for name in shown.classes(shown.read(example.label, split)):
                self.counts[f"labelled {name}"] += 1
        gold = np.zeros(1) if example.label is None else self._gold([example])
        fields = {self.labels.field_name: gold[0], "is_real_example": 1}
        for ids, segments in self._sequences(example, split):
            yield Row(ids, segments, fields)

    def _sequences(self, example, split):
        """The ids and segments of each row: one, or one for each window."""
        flags, vocabulary = self.flags, self.tokenizer.vocabulary
        text_a, text_b = (
            None if text is None else self.tokenizer.encode(text)
            for text in (example.text_a, example.text_b)
        )
        if flags.doc_stride:
            parts = text_windows.windows(text_a, flags.window_length, flags.doc_stride)
            self.counts["are read in several windows"] += len(parts) > 1
            if split != "train" and flags.window_pooling == "first":
                parts = parts[:1]
            return [packing.join(vocabulary, part) for part in parts]
        pack = packing.both_orders if flags.both_orders else packing.pack
        ids, segments, was_cut = pack(vocabulary, text_a, text_b, flags.max_seq_length)
        self.counts["were cut to --max_seq_length"] += was_cut
        return [(ids, segments)]

    def objective(self):
        objective, flags = self.labels.objective(), self.flags
        loss = flags.label_loss(self.labels.names, self.training_labels)
        return WithLabelLoss(objective, **loss) if loss else objective

    def _gold(self, examples):
        return self.labels.encode([example.label for example in examples])

    # --- Numbers ---------------------------------------------------------------------

    def _logits(self, predictions):
        """float32 [examples, outputs]"""
        logits = predictions.outputs["logits"]
        if not self.flags.doc_stride:
            return logits
        pooling = self.flags.window_pooling
        return text_windows.pool(logits, predictions.example_numbers, pooling)

    def score(self, predictions):
        gold, logits = self._gold(predictions.examples), self._logits(predictions)
        if predictions.split == self.eval_sets[0] and any(self._fits.values()):
            # The next answers are calibrated, too.
            self.labels.calibration = calibration.fit(gold, logits, **self._fits)
        predicted = self.labels.predict(logits)
        indices = [example.index for example in predictions.examples]
        scores = metrics.scores(self.data.scores, gold, predicted, indices)
        return scores | self.labels.calibration.scores(gold, logits, self.labels.names)

    def trivial_score(self, examples):
        score = metrics.FUNCTIONS[self.metric]
        return self.labels.trivial_score(self._gold(examples), self.metric, score)

    def judge(self, predictions):
        if predictions.examples[0].label is None:
            return []
        judgements, shown = [], self.labels.with_display_names
        for example, answer in zip(
            predictions.examples, self.answers(predictions), strict=True
        ):
            label = shown.read(example.label, predictions.split)
            gold, predicted, loss = shown.compare(label, answer)
            text = "\n".join(filter(None, (example.text_a, example.text_b)))
            judgements.append(
                Judgement(text, gold, predicted, loss, answer.get("probabilities", {}))
            )
        return judgements

    # --- Answers ---------------------------------------------------------------------

    def answers(self, predictions):
        return self.labels.with_display_names.answers(self._logits(predictions))

    def prediction_files(self, predictions):
        examples = predictions.examples
        # What the files of the data set call the labels, as in the release.
        answers = self.labels.answers(self._logits(predictions))
        split = predictions.split
        ending = "" if split == self.test_sets[0] else f"_{split}"
        contents = {
            f"test_results{ending}.tsv": map(labels.release_line, answers),
            f"predictions{ending}.jsonl": map(_json_line, examples, answers),
        }
        if split in self.data.server:
            name = f"{self.data.server[split]}.tsv"
            numbered = zip((e.index for e in examples), answers, strict=True)
            contents[name] = self.data.server_lines(numbered)
        return {
            name: "".join(f"{line}\n" for line in lines)
            for name, lines in contents.items()
        }

    # --- Export ----------------------------------------------------------------------

    @property
    def inputs(self):
        return {name: "text" for name in self.request(self.samples()[0])}

    def description(self):
        table = next(iter(self.data.test.values()))
        texts = [name for name in (table.text_a, table.text_b) if name is not None]
        return {
            **super().description(),
            **self.labels.calibration.description(),
            "columns": dict(zip(self.inputs, texts, strict=True)),
        }

    def samples(self):
        texts = zip(SAMPLE_TEXTS, reversed(SAMPLE_TEXTS), strict=True)
        has_pairs = self.data.has_pairs
        return [Example(a, b if has_pairs else None, None, "") for a, b in texts]

    def request(self, example):
        if example.text_b is None:
            return {"text": example.text_a}
        return {"text_a": example.text_a, "text_b": example.text_b}

    def serve(self, tokenizer, predict, **texts):
        logits = self._logits_of(tokenizer, predict, texts)[-1]
        return self.labels.with_display_names.serve(logits)

    explains = True

    def scores_to_explain(self, tokenizer, predict, **texts):
        read = self._logits_of(tokenizer, predict, texts)
        pooling = self.flags.window_pooling
        return self.labels.with_display_names.scores_to_explain(*read, pooling)

    def _logits_of(self, tokenizer, predict, texts):
        """In a graph: rows, their logits and requests (None: the same), the logits of
        these.
        """
        ids = [tokenizer.encode(texts[name]) for name in self.inputs]
        flags = self.flags
        if flags.doc_stride:
            pooling = flags.window_pooling
            most = 1 if pooling == "first" else None
            windows, owners = windows_graph.windows(
                *ids, flags.window_length, flags.doc_stride, most
            )
            batch = packing_graph.pack(tokenizer, windows, None, flags.max_seq_length)
            of_rows = run_in_chunks(predict, batch)["logits"]
            pooled = windows_graph.pool(of_rows, owners, ids[0].nrows(), pooling)
            return batch, of_rows, owners, pooled
        text_a, text_b = ids if len(ids) == 2 else (*ids, None)
        pack = packing_graph.both_orders if flags.both_orders else packing_graph.pack
        batch = pack(tokenizer, text_a, text_b, flags.max_seq_length)
        logits = run_in_chunks(predict, batch)["logits"]
        return batch, logits, None, logits


def _json_line(example, answer):
    values = {"index": example.index}
    if example.text_b is None:
        values |= {"text": example.text_a}
    else:
        values |= {"text_a": example.text_a, "text_b": example.text_b}
    if example.label is not None:
        values["gold"] = example.label
    return json.dumps(values | answer, ensure_ascii=False)


def make(model: TrainableModel) -> Classifier:
    """The task that the flags of a model describe."""
    return Classifier(model.flags, model.tokenizer, model.folder.text[1])


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
