"""Fine-tunes an encoder to choose between continuations or answers.

    python run_swag.py --do_train --do_eval \\
        --data_dir=swag --output_dir=swag_output \\
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt

The paper reports an accuracy of 81.6 % on the dev set (table 4, BERT-Base); reproductions
elsewhere reached 80.2 to 80.7 %. The 2018 release has no such script.

A file is SWAG's CSV, or JSON lines, where questions may differ in their number of choices:

    {"context": "On stage, a woman takes a seat at the piano.", "start": "She",
     "choices": ["sits on a bench.", "nervously sets her fingers on the keys."],
     "label": 1}

`start`, which may be missing, precedes every choice: the first words of the
continuation, or a question about the context. Labels count from 0; a test set needs none.

An exported model takes `context`, `start` and any number of `choices`.
"""

import dataclasses
import json
import math
import os
import re
from collections import Counter
from typing import NamedTuple

import numpy as np

import command_line
import options
from errors import UserError
from files import tables
from text.instances import packing
from text.tasks import choice_files
from training.finetuning.options import PooledOptions

_SAMPLES = (
    (
        "On stage, a woman sits down at the piano.",
        "She",
        ("plays.", "puts out the sea."),
    ),
    ("", "", ("a", "b", "c")),
    ("Ein Café in Zürich.", "Wo?", ("Ζυρίχη", "東京", "\u200b", "Москва")),
    ("A very long story. " * 200, "What is it?", ("Long. " * 300, "Short.")),
)


@dataclasses.dataclass(frozen=True)
class Options(PooledOptions):
    data_dir: str = options.field(
        help="Folder with --train_file, --dev_file and --test_file."
    )
    train_file: str = options.field(
        "train.csv",
        help="Training set, in data_dir. The suffix gives the format: .csv (SWAG's, with "
        "any number of columns ending0, ending1, ...) or .jsonl (objects with context, "
        "start, choices and label, or COPA's); a folder is RACE's.",
    )
    dev_file: str = options.field("val.csv", help="Dev set.")
    test_file: str = options.field("test.csv", help="Test set; labels optional.")
    # The paper's values for SWAG.
    train_batch_size: list[int] = options.override(
        PooledOptions,
        "train_batch_size",
        [16],
        help="Questions per update, over all replicas; a list is searched.",
    )
    learning_rate: list[float] = options.override(
        PooledOptions, "learning_rate", [2e-5]
    )

    def __post_init__(self):
        super().__post_init__()
        least = packing.NUM_SPECIAL_TOKENS + 2
        if self.max_seq_length < least:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least {least}, for a "
                "token of the context and one of the choice"
            )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import metrics
from training.run.settle import TrainableModel
from modeling.objectives import tasks
from text.graphs import choices_graph
from text.records.rows import Field, Row
from training.finetuning import finetune
from training.finetuning.task import Judgement, ServedTask

# === Reading =========================================================================


class SwagExample(NamedTuple):
    """A text and what may follow it; the label is the number of the right choice."""

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None


def _swag(values: dict, where: str) -> SwagExample:
    """A line of SWAG's CSV; its `startphrase` repeats sent1 and sent2."""
    endings = sorted(
        (name for name in values if re.fullmatch("ending[0-9]+", name)),
        key=lambda name: int(name.removeprefix("ending")),
    )
    expected = [f"ending{i}" for i in range(max(len(endings), 2))]
    for name in ("sent1", "sent2", *expected):
        if name not in values:
            form = tables.form_of(where.rpartition(":")[0])
            raise UserError(
                f"{tables.header_of(where)}: no column {name!r} among "
                f"{tables.spell(values, form)}; SWAG has sent1, sent2, ending0, ending1, "
                "... and label"
            )
    choices = [values[name].strip() for name in endings]
    while choices and not choices[-1]:  # fewer choices than other lines
        choices.pop()
    return _example(
        where, values["sent1"], values["sent2"], choices, values.get("label") or None
    )


def _object(values: dict, where: str) -> SwagExample:
    """A line of a JSON lines file, ours or COPA's."""
    if choice_files.is_copa(values):
        values = choice_files.copa(values, where)
    for name in ("context", "choices"):
        if name not in values:
            raise UserError(
                f"{where}: no {name!r} among {', '.join(values) or 'no keys'}; context and "
                "choices are required, and label except in a test set"
            )
    choices = values["choices"]
    if not isinstance(choices, list):
        raise UserError(f"{where}: choices is {choices!r:.40}, not a list")
    start = values.get("start", "")
    for text in (values["context"], start, *choices):
        if not isinstance(text, str):
            raise UserError(f"{where}: {text!r:.40} is not text")
    return _example(where, values["context"], start, choices, values.get("label"))


def _read(path, needs_label, max_line_mb):
    parse = _swag
    if os.path.isdir(path):
        parse, rows = _object, choice_files.race(path, max_line_mb)
    else:
        if tables.form_of(path) == "jsonl":
            parse = _object
        table = tables.read(path, max_line_mb=max_line_mb)
        rows = ((f"{path}:{number}", values) for number, values in table)
    examples = []
    for place, values in rows:
        example = parse(values, place)
        if example.label is None and needs_label:
            place = place if "label" in values else tables.header_of(place)
            raise UserError(f"{place}: no label; only a test set may omit it")
        examples.append(example)
    if not examples:
        raise UserError(f"{path}: contains no examples")
    return examples


def _example(where, context, start, choices, label):
    if len(choices) < 2:
        raise UserError(f"{where}: {len(choices)} choices; there must be at least two")
    for i, choice in enumerate(choices):
        if not choice.strip():
            raise UserError(f"{where}: choice {i} is empty")
    if label is not None:
        label = _label(label, len(choices), where)
    return SwagExample(context.strip(), start.strip(), tuple(choices), label)


def _label(value, num_choices, where):
    # int() would also accept 1_0, and the digits of every script.
    is_written = isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value)
    label = int(value) if is_written or type(value) is int else -1
    if not 0 <= label < num_choices:
        raise UserError(
            f"{where}: label {value!r:.40} is not one of the {num_choices} choices, which "
            f"are numbered from 0 to {num_choices - 1}"
        )
    return label


# === The task ========================================================================


def _most_choices(examples):
    return max(len(example.choices) for example in examples)


class MultipleChoice(ServedTask):
    """Every choice forms a sequence with the context; the highest score wins.

    Source: the paper, section 4.4 (arXiv:1810.04805); google-research/bert, issue 38.
    """

    fields = {"label_ids": Field()}
    form = "choice"
    inputs = {"context": "text", "start": "text", "choices": "list"}

    def __init__(self, flags: Options, tokenizer):
        super().__init__(tokenizer, flags.data_dir)
        self.flags = flags
        self.longest = {}  # number of choices, by set; the model takes any number

    def read(self, split):
        flags = self.flags
        names = {"train": flags.train_file, "dev": flags.dev_file}
        name = names.get(split, flags.test_file)
        path = os.path.join(flags.data_dir, name)
        needs_label = split == "dev" or (split == "train" and flags.needs_labels)
        examples = []
        if name or split != "train":
            examples += _read(path, needs_label, self.flags.max_line_mb)
        for more in flags.unlabeled_file if split == "train" else ():
            examples += [
                e._replace(label=None)
                for e in _read(more, False, self.flags.max_line_mb)
            ]
        self.longest[split] = _most_choices(examples)
        return examples

    def layout(self, examples, max_seq_length):
        number = _most_choices(examples)
        return dataclasses.replace(
            super().layout(examples, max_seq_length), num_choices=number
        )

    def featurize(self, example, split):
        encode = self.tokenizer.encode
        context, start = encode(example.context), encode(example.start)
        space = " " if example.start else ""  # some tokenizers take it in
        ids, segments, was_cut = zip(
            *(
                packing.pack(
                    self.tokenizer.vocabulary,
                    context,
                    [*start, *encode(space + choice)],
                    self.flags.max_seq_length,
                )
                for choice in example.choices
            ),
            strict=True,
        )
        self.counts["were cut to --max_seq_length"] += any(was_cut)
        fewer = len(example.choices) < self.longest.get(split, 0)
        self.counts["have fewer choices than others"] += fewer
        yield Row(ids, segments, {"label_ids": example.label or 0})

    def objective(self):
        return tasks.Choice()

    # --- Numbers ---------------------------------------------------------------------

    def score(self, predictions):
        gold = [example.label for example in predictions.examples]
        predicted = predictions.outputs["logits"].argmax(axis=1)
        return {"accuracy": metrics.accuracy(gold, predicted)}

    def trivial_score(self, examples):
        counts = Counter(example.label for example in examples)
        return max(counts.values()) / len(examples)

    def judge(self, predictions):
        judgements = []
        for example, answer in zip(
            predictions.examples, self.answers(predictions), strict=True
        ):
            chances = answer["probabilities"]
            lines = [example.context]
            for i, choice in enumerate(example.choices):
                lines.append(" ".join(filter(None, (f"{i}:", example.start, choice))))
            judgements.append(
                Judgement(
                    text="\n".join(lines),
                    gold=str(example.label),
                    predicted=str(answer["predicted"]),
                    error=-math.log(max(chances[example.label], 1e-12)),
                    probabilities={str(i): p for i, p in enumerate(chances)},
                )
            )
        return judgements

    # --- Answers ---------------------------------------------------------------------

    def answers(self, predictions):
        answers = []
        chances = metrics.softmax(predictions.outputs["logits"]).tolist()
        for example, row in zip(predictions.examples, chances, strict=True):
            row = row[: len(example.choices)]
            answers.append({"predicted": int(np.argmax(row)), "probabilities": row})
        return answers

    def prediction_files(self, predictions):
        answers = self.answers(predictions)
        contents = {
            "test_results.tsv": [
                "\t".join(map(str, answer["probabilities"])) for answer in answers
            ],
            "predictions.jsonl": map(_json_answer, predictions.examples, answers),
        }
        return {
            name: "".join(f"{line}\n" for line in lines)
            for name, lines in contents.items()
        }

    # --- Export ----------------------------------------------------------------------

    def description(self):
        return {**super().description(), "defaults": {"start": ""}}

    def samples(self):
        return [SwagExample(*texts, None) for texts in _SAMPLES]

    def request(self, example):
        return {
            "context": example.context,
            "start": example.start,
            "choices": list(example.choices),
        }

    def serve(self, tokenizer, predict, context, start, choices):
        length = self.flags.max_seq_length
        return choices_graph.choose(tokenizer, predict, context, start, choices, length)


def _json_answer(example, answer):
    values = {
        "context": example.context,
        **({"start": example.start} if example.start else {}),
        "choices": example.choices,
        **({} if example.label is None else {"gold": example.label}),
        **answer,
    }
    return json.dumps(values, ensure_ascii=False)


def make(model: TrainableModel) -> MultipleChoice:
    """The task that the flags of a model describe."""
    return MultipleChoice(model.flags, model.tokenizer)


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
