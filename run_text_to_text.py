"""Fine-tunes a T5, which answers every task by writing text.

    python run_text_to_text.py --task_name=MRPC --do_train --do_eval --do_export \\
        --data_dir=glue/MRPC --output_dir=mrpc_output \\
        --vocab_file=t5/spiece.model --bert_config_file=t5/config.json \\
        --init_checkpoint=t5 --optimizer=adafactor_constant --learning_rate=1e-3 \\
        --clip_norm=0

Examples of GLUE and SQuAD become text as in T5's release: "mrpc sentence1: ... sentence2:
...", and the answer is "equivalent" or "not_equivalent". Answers are scored as those of
run_classifier.py and run_squad.py. For your own data, use --task_name=custom: a table with
the columns input and target.
"""

import dataclasses
import functools
import json
import os

import numpy as np
from absl import logging

import command_line
import extensions
import options
from errors import UserError
from files import local, tables
from text.tasks import glue, squad
from training.finetuning.options import FineTuningOptions

extensions.require("family.t5")
from family.t5 import as_text

_FILES = {  # unless flags name others; GLUE's are in its table
    "custom": {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"},
    "squad": {"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
}
_COLUMNS = "--task_name, --input_column and --target_column"
_cell = functools.partial(tables.cell, flags=_COLUMNS)
_text = functools.partial(tables.text, flags=_COLUMNS)
_WRITTEN = ("predictions.jsonl", "predictions.json")
_OF_HEADS = (
    "distill_from",
    "lstm_layers",
    "features",
    "lm_loss_weight",
    "export_formats",
)


@dataclasses.dataclass(frozen=True)
class Options(FineTuningOptions):
    data_dir: str = options.field(help="Folder of the task's files.")
    task_name: str = options.field(
        help=f"One of {', '.join(glue.TASKS)}, squad (any case), or custom: your own files."
    )
    train_file: str | None = options.field(
        None,
        help="squad and custom: training set, in data_dir. By default train-v1.1.json, for "
        "custom train.tsv. The suffix of a table gives the format: .tsv (with a header; "
        "quotes are plain characters), .csv (with a header) or .jsonl (one object per "
        "line).",
        only_for={"task_name": tuple(_FILES)},
    )
    dev_file: str | None = options.field(
        None,
        help="squad and custom: dev set; by default dev-v1.1.json, for custom dev.tsv.",
        only_for={"task_name": tuple(_FILES)},
    )
    test_file: str | None = options.field(
        None,
        help="squad and custom: the set to predict; by default SQuAD's dev set, for custom "
        "test.tsv. Answers and targets are optional.",
        only_for={"task_name": tuple(_FILES)},
    )
    input_column: str = options.field(
        "input", help="custom: column of the input.", only_for={"task_name": "custom"}
    )
    target_column: str = options.field(
        "target", help="custom: column of the target.", only_for={"task_name": "custom"}
    )
    skip_bad_lines: bool = options.field(
        False,
        help="Skip and count lines whose number of columns differs from the first line, "
        "instead of refusing the file; QQP's training set has some.",
        only_for={"task_name": (*glue.TASKS, "custom")},
    )
    max_target_length: int = options.field(
        32,
        help="Maximum number of tokens of a target and of what is written, with the one "
        "that ends it.",
        at_most=options.MOST_TOKENS,
        at_least=2,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task not in (*glue.TASKS, *_FILES):
            raise UserError(
                f"--task_name={self.task_name}: not one of {', '.join(glue.TASKS)}, "
                f"{', '.join(_FILES)}"
            )
        if self.max_seq_length < 2:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 2, for a token "
                "and the one at the end"
            )
        self._refuse_flags_of_heads()
        tables.check_different(self, "input_column", "target_column")
        if self.do_predict and self.task in _FILES:
            local.refuse_inputs(
                [os.path.join(self.output_dir, name) for name in _WRITTEN],
                [self.path(split) for split in ("train", "dev", "test")],
            )

    def _refuse_flags_of_heads(self):
        """Refuses flags of the tasks that have a head."""
        for name in _OF_HEADS:
            if getattr(self, name):
                raise UserError(
                    f"--{name} has no effect on a model that writes text; remove it"
                )

    @property
    def task(self) -> str:
        return self.task_name.lower()

    def path(self, split: str) -> str:
        """The file of "train", "dev" or "test", of tasks that are not GLUE's."""
        files = _FILES[self.task]
        name = getattr(self, f"{split}_file") or files.get(split)
        # SQuAD's dev set is also the one to predict.
        return self.path("dev") if name is None else os.path.join(self.data_dir, name)


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import metrics
from training.run.settle import TrainableModel
from family.t5.task import TextTask, TextToTextExample, check_target
from training.finetuning import finetune, labels, squad_metrics

# === Tasks ===========================================================================


class Glue(TextTask):
    """A task of GLUE: a word for the label, or a number."""

    def __init__(self, flags: Options, tokenizer):
        super().__init__(flags, tokenizer, as_text.GLUE[flags.task])
        self.data = glue.TASKS[flags.task]
        self.labels = labels.make(self.data, None)
        self.metric = self.data.scores[0]
        self.eval_sets, self.test_sets = tuple(self.data.dev), tuple(self.data.test)
        if self.data.train is None and (flags.do_train or flags.do_eval):
            raise UserError(
                f"--task_name={flags.task_name} has only a test set; train on MNLI, then "
                "pass only --do_predict, with --init_checkpoint"
            )

    def read(self, split):
        table = self.data.table(split)
        path = os.path.join(self.flags.data_dir, table.file)
        skip = self.flags.skip_bad_lines
        examples = []
        rows = tables.read(
            path,
            table.header,
            skip_bad_lines=skip,
            max_line_mb=self.flags.max_line_mb,
        )
        for number, values in rows:
            where = f"{path}:{number}"
            label = None
            if split not in self.data.test:
                label = self._label(_cell(values, table.label, where), where)
            pair = (table.text_a, table.text_b)
            texts = [None if c is None else _text(values, c, where) for c in pair]
            texts = as_text.features_of(self.flags.task, *texts)
            index = values.get("index", values.get("id", len(examples)))
            examples.append(TextToTextExample(texts, label, str(index)))
        return _not_empty(examples, path)

    def _label(self, value, where):
        names = self.labels.names
        if names and value.strip() not in names:
            raise UserError(
                f"{where}: label {value!r:.40} is not one of {', '.join(names)}; check "
                "--task_name and --data_dir"
            )
        return self.labels.read(value, where)

    @property
    def columns(self):
        table = next(iter(self.data.test.values()))
        return as_text.features_of(self.flags.task, table.text_a, table.text_b)

    def _gold(self, examples):
        return self.labels.encode([example.label for example in examples])

    def score(self, predictions):
        gold = self._gold(predictions.examples)
        read = [self.reads(text) for text in self.predicted_texts(predictions)]
        if self.labels.names is None:
            predicted = np.array(read)
        else:
            numbers = {name: n for n, name in enumerate(self.labels.names)}
            predicted = np.array([numbers.get(label, -1) for label in read])
        scores = {}
        for name in self.data.scores:
            answers = predicted
            if name == "f1":
                # Any other text counts as the wrong one of two labels.
                # Source: t5/evaluation/metrics.py@e081111, f1_score_with_invalid.
                answers = np.where(predicted < 0, 1 - gold, predicted)
            scores[name] = metrics.FUNCTIONS[name](gold, answers)
        if self.has_classes:
            scores["other_texts"] = float(np.mean(predicted < 0))
        return scores

    def trivial_score(self, examples):
        score = metrics.FUNCTIONS[self.metric]
        return self.labels.trivial_score(self._gold(examples), self.metric, score)

    def error(self, example, text):
        if not self.wording.are_numbers:
            return super().error(example, text)
        return abs(self.reads(text) - example.label)

    def files(self, predictions, texts):
        files = super().files(predictions, texts)
        split, answers = predictions.split, list(map(self.reads, texts))
        if split in self.data.server:
            if others := answers.count(None):
                logging.warning(
                    "%s: %d texts are no label, and count as %r for the GLUE server",
                    *(split, others, self.labels.names[0]),
                )
            chosen = (self.labels.names[0] if a is None else a for a in answers)
            numbered = zip((e.index for e in predictions.examples), chosen, strict=True)
            lines = self.data.server_lines((i, {"predicted": a}) for i, a in numbered)
            name = f"{self.data.server[split]}.tsv"
            files[name] = "".join(f"{line}\n" for line in lines)
        return files


class SquadAsText(TextTask):
    """Questions about a text, each with an answer: SQuAD 1.1."""

    metric = "f1"
    has_percentages = True

    def __init__(self, flags: Options, tokenizer):
        super().__init__(flags, tokenizer, as_text.SQUAD)
        self.test_sets = ("test",) if flags.test_file else ("dev",)

    def read(self, split):
        path = self.flags.path(split)
        is_scored = self.flags.evaluates or self.flags.compares
        needs_answers = split == "train" or (split == "dev" and is_scored)
        read = squad.read_to_answer if split != "train" else _questions
        examples = []
        for example in read(path, self.flags.max_line_mb):
            answers = tuple(example.references) or None
            if needs_answers and not answers:
                raise UserError(
                    f"{path}: question {example.id!r} has no answer; a model that writes "
                    "text cannot decline to answer, as SQuAD 2.0 asks, so remove it"
                )
            if split == "train":
                check_target(answers[0], f"{path}: question {example.id!r}")
            texts = {name: getattr(example, name) for name in self.wording.features}
            examples.append(TextToTextExample(texts, answers, example.id))
        return examples

    @property
    def columns(self):
        return {name: name for name in self.wording.features}

    def _answer(self, example, text):
        """A written text as the context spells it, which is how references are."""
        return as_text.answer_in_context(text, example.texts["context"])

    def score(self, predictions):
        examples = predictions.examples
        answers = map(self._answer, examples, self.predicted_texts(predictions))
        return squad_metrics.evaluate([e.label for e in examples], list(answers))

    def _scores(self, example, text):
        return squad_metrics.score([example.label], [self._answer(example, text)])

    def is_right(self, example, text):
        return bool(self._scores(example, text)[0][0])

    def error(self, example, text):
        return 1.0 - float(self._scores(example, text)[1][0])

    def files(self, predictions, texts):
        answers = {
            example.index: self._answer(example, text)
            for example, text in zip(predictions.examples, texts, strict=True)
        }
        content = json.dumps(answers, indent=4) + "\n"
        return super().files(predictions, texts) | {"predictions.json": content}


class Custom(TextTask):
    """A table of inputs and targets."""

    def __init__(self, flags: Options, tokenizer):
        super().__init__(flags, tokenizer, as_text.PLAIN)

    def read(self, split):
        flags, path = self.flags, self.flags.path(split)
        examples = []
        rows = tables.read(
            path, skip_bad_lines=flags.skip_bad_lines, max_line_mb=flags.max_line_mb
        )
        for number, values in rows:
            where = f"{path}:{number}"
            target = values.get(flags.target_column)
            if split != "test":
                target = check_target(_text(values, flags.target_column, where), where)
            texts = {"input": _text(values, flags.input_column, where)}
            index = values.get("index", values.get("id", len(examples)))
            examples.append(TextToTextExample(texts, target or None, str(index)))
        return _not_empty(examples, path)

    @property
    def columns(self):
        return {"input": self.flags.input_column}

    def score(self, predictions):
        texts = self.predicted_texts(predictions)
        targets = [self.spell(self.target(e)) for e in predictions.examples]
        _, f1 = squad_metrics.score([[target] for target in targets], texts)
        return {
            "accuracy": metrics.accuracy(np.array(targets), np.array(texts)),
            "f1": float(f1.mean()),
        }

    def trivial_score(self, examples):
        _, counts = np.unique(
            [example.label for example in examples], return_counts=True
        )
        return float(counts.max() / len(examples))


def _questions(path, max_line_mb):
    examples = [example for _, example in squad.read(path, max_line_mb)]
    return _not_empty(examples, path)


def _not_empty(examples, path):
    if not examples:
        raise UserError(f"{path}: contains no examples")
    return examples


_TASKS = {"squad": SquadAsText, "custom": Custom}


def make(model: TrainableModel) -> TextTask:
    """The task that the flags of a model name."""
    return _TASKS.get(model.flags.task, Glue)(model.flags, model.tokenizer)


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
