"""Fine-tunes an encoder to find named entities, or trains a BiLSTM on its features.

    python run_ner.py --do_train --do_eval --do_predict \\
        --data_dir=conll2003 --document_context --max_seq_length=512 \\
        --output_dir=ner_output --do_lower_case=false \\
        --vocab_file=cased_L-12_H-768_A-12/vocab.txt \\
        --bert_config_file=cased_L-12_H-768_A-12/bert_config.json \\
        --init_checkpoint=cased_L-12_H-768_A-12/bert_model.ckpt

The paper reports an F1 of 96.4 on CoNLL-2003's dev set and 92.4 on its test set (table 7,
BERT-Base). Reproductions elsewhere reached about 92.4 with the document as context, and 91
to 92 without. The 2018 release has no such script.

Names need a cased model: pass --do_lower_case=false, because the release's default is true.

A file has one line per word, with columns; other lines separate sentences. Entities are
marked by IOB1, IOB2 or IOBES tags. With --features, the encoder is frozen and two BiLSTM
layers are trained on its outputs (the paper's feature-based approach; 96.1 on the dev set
with concat_last_four). They need a higher --learning_rate, such as 1e-3.

An exported tagger takes `words`, a list in which an empty word ends a sentence. With
--document_context, the sentences of a list are each other's context, and two more texts,
`before` and `after`, may hold the surrounding text, words separated by spaces.
"""

import dataclasses
import os
from itertools import chain

import numpy as np

import command_line
import options
from errors import UserError
from text.files import inputs
from text.tasks import tags
from training.finetuning.options import FineTuningOptions

_SAMPLES = (
    "George Washington was never in Washington .",
    "",
    "Zürich",
    "Η Αθήνα και η Москва",
    "東京 은 \u200b",
    "Bonn and " * 300,
)


@dataclasses.dataclass(frozen=True)
class Options(FineTuningOptions):
    data_dir: str = options.field(
        help="Folder with --train_file, --dev_file and --test_file."
    )
    train_file: str = options.field("train.txt", help="Training set, in data_dir.")
    dev_file: str = options.field("dev.txt", help="Dev set.")
    test_file: str = options.field(
        "test.txt",
        help="Test set; its tags are not read and may be missing. To score it, pass it as "
        "--dev_file.",
    )
    word_column: int = options.field(
        0, help="Column of the word, counted from 0, or from the end with -1, -2, ..."
    )
    tag_column: int = options.field(
        -1, help="Column of the tag, counted as in --word_column."
    )
    word_prefix: str = options.field(
        "", help="Prefix to remove from words, such as en: in WikiANN."
    )
    tag_scheme: str = options.field(
        "detect",
        choices=("detect", *tags.SCHEMES),
        help="How tags mark entities; by default, detected from the training set.",
    )
    entity_types: list[str] = options.field(
        [],
        help="All types, such as PER,LOC; by default, those of the training set, sorted.",
        distinct=True,
    )
    document_context: bool = options.field(
        False,
        help="Fill rows up to --max_seq_length with the sentences around the one to tag. "
        "A -DOCSTART- line begins a document.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_seq_length < 3:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 3, for [CLS], a "
                "piece and [SEP]"
            )


if __name__ == "__main__":
    command_line.parse(
        Options
    )  # --help and mistakes are answered before TensorFlow loads

from training import metrics
from training.run import checks
from training.storage import run_folder
from modeling.objectives import tasks
from text.graphs import tags_graph
from text.instances import packing
from text.records.rows import Field, Row
from training.finetuning import entities, finetune
from training.finetuning.task import ServedTask


class Tagger(ServedTask):
    """Tags each word by its first piece.

    The network uses IOB2 tags, whatever scheme the files have.

    Source: the paper, section 5.3 (arXiv:1810.04805).
    """

    has_classes = True
    fields = {
        "label_ids": Field("int64", (None,)),
        "label_weights": Field("float32", (None,)),
    }
    metric = "f1"
    form = "tags"
    inputs = {"words": "list"}

    def __init__(self, flags: Options, tokenizer):
        super().__init__(tokenizer, flags.data_dir)
        self.flags = flags
        self.types = tuple(flags.entity_types)
        self.scheme = None if flags.tag_scheme == "detect" else flags.tag_scheme
        self.faults = {}  # split -> message about tags that break the scheme
        self.test_lines = []
        most = flags.max_seq_length - 2
        self.pieces = tags.Pieces(tokenizer, most, self.counts)
        if flags.document_context:
            self.inputs = {"words": "list", "before": "text", "after": "text"}

    @property
    def labels(self) -> list[str]:
        """The network's classes: O, then B and I of each type."""
        pairs = (tags.mark([tags.Entity(t, 0, 2)], 2, "iob2") for t in self.types)
        return [tags.OUTSIDE, *chain.from_iterable(pairs)]

    # --- Files -----------------------------------------------------------------------

    def read(self, split):
        flags = self.flags
        names = {"train": flags.train_file, "dev": flags.dev_file}
        name = names.get(split, flags.test_file)
        path = os.path.join(flags.data_dir, name)
        sentences = []
        if name or split != "train":
            lines = list(inputs.lines(path))
            columns = self._columns(has_tags=split in names)
            sentences += tags.parse(lines, path, columns)
            if split in names:
                self._learn_scheme(sentences, path, split)
                self._learn_types(sentences, path, split)
            else:
                self.test_lines = lines
        for more in flags.unlabeled_file if split == "train" else ():
            columns = self._columns(has_tags=False)
            sentences += tags.parse(list(inputs.lines(more)), more, columns)
        if not self.types:
            raise UserError(
                "no entity types are known; train first, or pass --entity_types"
            )
        if flags.document_context:
            return list(tags.in_documents(sentences))
        return sentences

    def _columns(self, *, has_tags):
        flags = self.flags
        tag_column = flags.tag_column if has_tags else None
        return tags.Columns(flags.word_column, tag_column, flags.word_prefix)

    def _learn_scheme(self, sentences, path, split):
        self.scheme = self.scheme or tags.detect(s.tags for s in sentences)
        if line := tags.first_fault(sentences, self.scheme):
            self.faults[split] = (
                f"tag(s) break the rules of {self.scheme}, the first in {path}:{line}, and "
                "are read as conlleval reads them"
            )

    def _learn_types(self, sentences, path, split):
        if split == "train" and not self.types:
            self.types = tags.types(sentences)
            if not self.types:
                raise UserError(f"{path}: contains no entities; check --tag_column")
        if self.types:
            tags.check_types(sentences, self.types, path)

    def settings(self):
        names = ("document_context", "features")
        return {name: getattr(self.flags, name) for name in names}

    def state(self):
        return {
            "entity_types": self.types,
            "tag_scheme": self.scheme,
            **self.settings(),
        }

    def restore(self, state):
        if "tag_scheme" not in state:
            if state.get("head") == "tagging":  # from another program's model
                self._restore_labels(state.get("labels"))
            return
        flags = self.flags
        types = flags.entity_types or state["entity_types"]
        for name, mine in (("entity_types", types), *self.settings().items()):
            if mine != state.get(name, mine):
                mine, trained = (
                    ",".join(x) if isinstance(x, list) else "none" if x is None else x
                    for x in (mine, state[name])
                )
                raise UserError(
                    f"--{name} is {mine}, but the model was trained with {trained}; pass "
                    "the same"
                )
        self.types = tuple(state["entity_types"])
        self.scheme = self.scheme or state["tag_scheme"]

    def _restore_labels(self, labels):
        if labels is None and not self.types:
            raise UserError(
                f"{self.flags.init_checkpoint}: id2label in the model's config.json has no "
                "tags, only the default LABEL_0, LABEL_1, ...; write O, B-X, I-X, B-Y, "
                "I-Y, ... there or, if these are its labels in this order, pass "
                "--entity_types=X,Y"
            )
        if labels is None:
            return
        self.types = self.types or tuple(x[2:] for x in labels if x.startswith("B-"))
        if self.labels != labels:
            raise UserError(
                f"the model's labels are {', '.join(labels)} in this order; this script "
                f"only reads {', '.join(self.labels)}: train with --do_train and "
                "--init_encoder_only"
            )

    # --- Rows ------------------------------------------------------------------------

    def featurize(self, example, split):
        if self.flags.document_context:
            pieces, edges = self.pieces.of_document(example.context)
            first = example.before
            self.counts[
                "have no -DOCSTART- line before them and count as one document"
            ] += example.document == 0
        else:
            pieces, edges = self.pieces.of(example.words)
            first = 0
        labels = self._labels_of(example, split)
        windows = list(
            tags.windows(
                edges, first, first + len(example.words), self.flags.max_seq_length - 2
            )
        )
        self.counts["are longer than a row and read in parts"] += len(windows) > 1
        vocabulary = self.tokenizer.vocabulary
        for window in windows:
            ids = chain.from_iterable(pieces[window.start : window.stop])
            ids, segments = packing.join(vocabulary, ids)
            places = edges[window.own_start : window.own_stop] - edges[window.start]
            places += len(vocabulary.head)
            own = slice(window.own_start - first, window.own_stop - first)
            label_ids = np.zeros(len(ids), np.int64)
            label_weights = np.zeros(len(ids), np.float32)
            label_ids[places], label_weights[places] = labels[own], 1.0
            fields = {"label_ids": label_ids, "label_weights": label_weights}
            yield Row(ids, segments, fields, notes=(own, places))

    def _labels_of(self, example, split):
        if example.tags is None:
            return np.zeros(len(example.words), np.int64)
        if split in self.faults:
            self.counts[self.faults[split]] += len(
                tags.faults(example.tags, self.scheme)
            )
        numbers = {label: number for number, label in enumerate(self.labels)}
        marks = tags.mark(tags.entities(example.tags), len(example.tags), "iob2")
        return np.array([numbers[mark] for mark in marks])

    def objective(self):
        return tasks.Tagging(len(self.labels))

    # --- Numbers ---------------------------------------------------------------------

    def score(self, predictions):
        examples = predictions.examples
        sides = (
            [tags.entities(example.tags) for example in examples],
            [self._found(logits) for logits in self._logits(predictions)],
        )
        gold, predicted = (
            {(i, *entity) for i, found in enumerate(side) for entity in found}
            for side in sides
        )
        scores = metrics.found(gold, predicted)
        # Files with another scheme than the training set's say the same in other tags.
        marks = (
            tags.mark(found, len(example.tags), self.scheme)
            for side in sides
            for found, example in zip(side, examples, strict=True)
        )
        marks = np.array(list(chain.from_iterable(marks)), object).reshape(2, -1)
        scores["accuracy"] = metrics.accuracy(*marks)
        for kind in filter(None, self.types):
            some = ({e for e in each if e[1] == kind} for each in (gold, predicted))
            for name, value in metrics.found(*some).items():
                scores[f"{name}_{kind}"] = value
        return scores

    def _logits(self, predictions):
        """For each example, float32 [words, labels]."""
        number = len(self.labels)
        logits = [np.empty((len(e.words), number)) for e in predictions.examples]
        for i, notes in enumerate(predictions.notes):
            own, places = notes
            example = predictions.example_numbers[i]
            logits[example][own] = predictions.outputs["logits"][i, places]
        return logits

    def _found(self, logits):
        labels = self.labels
        return tags.entities([labels[n] for n in logits.argmax(axis=1)])

    def trivial_score(self, examples):
        return 0.0  # for finding nothing

    def judge(self, predictions):
        judgements = []
        for example, logits in zip(
            predictions.examples, self._logits(predictions), strict=True
        ):
            true = tags.entities(example.tags)
            judgements += entities.judged(
                example.words,
                (true, self._found(logits)),
                metrics.softmax(logits),
                self.labels,
                tags.mark(true, len(example.words), "iob2"),
            )
        return judgements

    # --- Answers ---------------------------------------------------------------------

    def answers(self, predictions):
        answers = []
        for example, logits in zip(
            predictions.examples, self._logits(predictions), strict=True
        ):
            words, found = _sent(example.words), self._found(logits)
            answers.append(
                {
                    "tags": tags.mark(found, len(words), self._written_scheme),
                    "probabilities": metrics.softmax(logits).max(axis=1).tolist(),
                    "entities": [
                        {
                            "text": " ".join(words[start:stop]),
                            "type": kind,
                            "start": start,
                            "stop": stop,
                        }
                        for kind, start, stop in found
                    ],
                }
            )
        return answers

    @property
    def _written_scheme(self):
        return self.scheme or "iob2"

    def write_predictions(self, predictions, directory):
        added = {}
        answers = self.answers(predictions)
        for example, answer in zip(predictions.examples, answers, strict=True):
            added |= enumerate(answer["tags"], start=example.line)
        columns = self._columns(has_tags=False)
        lines = tags.with_column(self.test_lines, columns, added)
        path = os.path.join(directory, "predictions.txt")
        run_folder.write_file(path, "".join(f"{line}\n" for line in lines))
        return [path]

    # --- Export ----------------------------------------------------------------------

    def samples(self):
        sentences, before = [], 0
        for text in _SAMPLES:
            words = tuple(text.split())
            sentences.append(tags.Sentence(words, None, 1, 1, before))
            before += len(words)
        return list(tags.in_documents(sentences))

    def request(self, example):
        request = {"words": _sent(example.words)}
        if self.flags.document_context:
            most = self.flags.max_seq_length - 2  # words that fit in a row
            start, stop = example.before, example.before + len(example.words)
            before = example.context[max(start - most, 0) : start]
            after = example.context[stop : stop + most]
            request["before"] = " ".join(_sent(before))
            request["after"] = " ".join(_sent(after))
        return request

    def serve(self, tokenizer, predict, words, **around):
        around = tags_graph.Around(**around) if self.flags.document_context else None
        labels, probabilities = tags_graph.label(
            tokenizer, predict, words, self.flags.max_seq_length, around
        )
        answers = tags_graph.read(words, labels, self.types, self._written_scheme)
        return answers | {"probabilities": probabilities}


def _sent(words):
    """Words for a request; an empty one is replaced by another without pieces."""
    return [word or "\u200b" for word in words]


def make(flags: Options) -> Tagger:
    """The task that flags describe."""
    return Tagger(flags, checks.make_tokenizer(flags))


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    finetune.finetune(make(flags), flags)


if __name__ == "__main__":
    command_line.run(main, Options)
