"""Fine-tunes an encoder to tag words or characters, or trains a BiLSTM on its features.

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
marked by IOB1, IOB2 or IOBES tags. Tags that mark no entities, such as parts of speech, are
learned as they are:

    python run_ner.py --do_train --do_eval --data_dir=ud --tag_column=upos \\
        --train_file=ko_gsd-ud-train.conllu --dev_file=ko_gsd-ud-dev.conllu ...

--tag_column=upos or xpos reads CoNLL-U. A line may also hold a character instead of a word;
KLUE-NER's file is read as it is. Tokens that are a space are not scored.

With --features, the encoder is frozen and two BiLSTM layers are trained on its outputs (the
paper's feature-based approach; 96.1 on the dev set with concat_last_four). They need a
higher --learning_rate, such as 1e-3.

An exported tagger takes `words`, a list in which an empty word ends a sentence. With
--document_context, the sentences of a list are each other's context, and two more texts,
`before` and `after`, may hold the surrounding text, words separated by spaces.
"""

import dataclasses
import os
import re
from itertools import chain

import numpy as np

import command_line
import options
from errors import UserError
from files import inputs
from text.tasks import tag_files, tags
from training.finetuning.label_options import LabelOptions

_SAMPLES = (
    "George Washington was never in Washington .",
    "",
    "Zürich",
    "Η Αθήνα και η Москва",
    "東京 은 \u200b",
    "Bonn and " * 300,
)


@dataclasses.dataclass(frozen=True)
class Options(LabelOptions):
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
        0,
        help="Column of the word, counted from 0, or from the end with -1, -2, ... In "
        "CoNLL-U, it is always that of the form.",
    )
    tag_column: str = options.field(
        "-1",
        help="Column of the tag, counted as in --word_column; or upos or xpos, which means "
        "that the files are CoNLL-U, as does a name that ends in .conllu.",
    )
    word_prefix: str = options.field(
        "", help="Prefix to remove from words, such as en: in WikiANN."
    )
    tag_scheme: str = options.field(
        "detect",
        choices=("detect", *tags.SCHEMES, "none"),
        help="How tags mark entities, or none if they do not; by default, detected from "
        "the training set.",
    )
    entity_types: list[str] = options.field(
        [],
        help="All types of entities, such as PER,LOC; by default, those of the training "
        "set, sorted.",
        distinct=True,
        only_for={"tag_scheme": ("detect", *tags.SCHEMES)},
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
        if self.tag_column not in tag_files.TAGS and not _is_integer(self.tag_column):
            raise UserError(
                f"--tag_column={self.tag_column}: must be {', '.join(tag_files.TAGS)} or a "
                "number"
            )


def _is_integer(text):
    return re.fullmatch("-?[0-9]{1,9}", text) is not None


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.backend import tf
from training.run.settle import TrainableModel
from modeling.objectives import tasks
from modeling.objectives.label_loss import WithLabelLoss
from serving.integrated_gradients import Scores
from text.graphs import tags_graph
from text.graphs.graph_tokenizer import row_numbers
from text.graphs.row_chunks import run_in_chunks
from text.instances import packing
from text.records.rows import Field, Row
from text.tasks import tag_rows
from training.finetuning import finetune, plain_tags
from training.finetuning.entities import Entities
from training.finetuning.plain_tags import PlainTags
from training.finetuning.tag_scheme import SPACE, TagScheme
from training.finetuning.task import ServedTask


class Tagger(ServedTask):
    """Tags each word by its first piece.

    Source: the paper, section 5.3 (arXiv:1810.04805).
    """

    has_classes = True
    fields = {
        "label_ids": Field("int64", (None,)),
        "label_weights": Field("float32", (None,)),
    }
    inputs = {"words": "list"}

    def __init__(self, flags: Options, tokenizer):
        super().__init__(tokenizer, flags.data_dir)
        self.flags = flags
        self.scheme = self._chosen_scheme()
        self.test_lines = []
        self.training_labels = None  # int [words], of all sentences
        most = flags.max_seq_length - 2
        self.pieces = tag_rows.Pieces(tokenizer, most, self.counts)
        if flags.document_context:
            self.inputs = {"words": "list", "before": "text", "after": "text"}

    def _chosen_scheme(self) -> TagScheme | None:
        """That of the flags; None: tags or a trained model decide."""
        flags = self.flags
        if flags.tag_scheme == plain_tags.NAME:
            return PlainTags(self.counts)
        if flags.tag_scheme != "detect":
            return Entities(self.counts, flags.entity_types, flags.tag_scheme)
        return Entities(self.counts, flags.entity_types) if flags.entity_types else None

    @property
    def labels(self) -> list[str]:
        """The network's classes."""
        return self.scheme.labels

    @property
    def form(self):
        return self.scheme.form

    @property
    def metric(self):
        return self.scheme.metric

    # --- Files -----------------------------------------------------------------------

    def read(self, split):
        flags = self.flags
        names = {"train": flags.train_file, "dev": flags.dev_file}
        name = names.get(split, flags.test_file)
        path = os.path.join(flags.data_dir, name)
        sentences = []
        if name or split != "train":
            lines = self._lines(path)
            layout = self._layout_of(path, has_tags=split in names)
            sentences += layout.sentences(lines, path)
            if split in names:
                self.scheme = self.scheme or self._detect(sentences, path)
                sentences = self.scheme.read(sentences, path, split)
                if split == "train" and flags.label_loss_flags:
                    self.training_labels = self._numbers_of(sentences)
            else:
                self.test_lines = lines
        for more in flags.unlabeled_file if split == "train" else ():
            layout = self._layout_of(more, has_tags=False)
            sentences += layout.sentences(self._lines(more), more)
        if not (self.scheme and self.labels):
            raise UserError(
                "no tags are known; train first, or pass --entity_types if they mark "
                "entities"
            )
        if flags.document_context:
            return list(tag_files.in_documents(sentences))
        return sentences

    def _numbers_of(self, sentences):
        encoded = [self.scheme.encode(one.tags, "train") for one in sentences]
        numbers, weights = map(np.concatenate, zip(*encoded, strict=True))
        return numbers[weights > 0]

    def _lines(self, path):
        try:
            return list(inputs.lines(path, max_line_mb=self.flags.max_line_mb))
        except FileNotFoundError as error:
            raise UserError(
                f"{path}: no such file; check --data_dir, and --train_file, --dev_file and "
                "--test_file, which name files in it"
            ) from error

    def _layout_of(self, path, *, has_tags):
        flags = self.flags
        columns = flags.word_column, flags.tag_column
        return tag_files.layout_of(path, *columns, flags.word_prefix, has_tags)

    def _detect(self, sentences, path):
        """Entities if tags look like theirs, PlainTags if none does."""
        entity = other = None  # the first of each: line, tag
        for one in sentences:
            for pair in zip(one.lines, one.tags, strict=True):
                if not tags.is_tag(pair[1]):
                    other = other or pair
                elif "-" in pair[1]:
                    entity = entity or pair
        if other and entity:
            raise UserError(
                f"{path}:{other[0]}: {other[1]!r} is not a tag of an entity, but "
                f"{entity[1]!r} in line {entity[0]} is; fix the tags"
                f"{tags.hint(other[1])} or --tag_column, or pass "
                f"--tag_scheme={plain_tags.NAME} to learn all tags as they are"
            )
        return PlainTags(self.counts) if other else Entities(self.counts)

    def settings(self):
        names = ("document_context", "features")
        return {name: getattr(self.flags, name) for name in names}

    def state(self):
        return {**self.scheme.state(), **self.settings()}

    def restore(self, state):
        if "tag_scheme" not in state:
            if state.get("head") == "tagging":  # from another program's model
                self._restore_labels(state.get("labels"))
            return
        flags, learned = self.flags, state["tag_scheme"]
        settings = self.settings()
        if flags.entity_types:
            settings["entity_types"] = flags.entity_types
        is_plain = learned == plain_tags.NAME
        if self.scheme and is_plain != isinstance(self.scheme, PlainTags):
            settings["tag_scheme"] = flags.tag_scheme
        for name, value in settings.items():
            if value != state.get(name, [] if name == "entity_types" else value):
                value, trained = (
                    ",".join(x) if isinstance(x, list) else "none" if x is None else x
                    for x in (value, state.get(name, "none"))
                )
                raise UserError(
                    f"--{name} is {value}, but the model was trained with {trained}; pass "
                    "the same"
                )
        if is_plain:
            self.scheme = PlainTags(self.counts, state["tags"])
        else:
            name = self.scheme.name if self.scheme else None
            self.scheme = Entities(self.counts, state["entity_types"], name or learned)
        self.scheme.is_by_character = state.get("characters", False)

    def _restore_labels(self, labels):
        source = self.flags.init_checkpoint
        if labels is None:
            if self.scheme and self.labels:
                return
            raise UserError(
                f"{source}: id2label in the model's config.json has no "
                "tags, only the default LABEL_0, LABEL_1, ...; write the tags there, such "
                "as O, B-X, I-X, B-Y, I-Y, or, if these are its labels in this order, pass "
                "--entity_types=X,Y"
            )
        if isinstance(self.scheme, PlainTags) or not all(map(tags.is_tag, labels)):
            self.scheme = PlainTags(self.counts, labels)
            return
        types = self.flags.entity_types or [x[2:] for x in labels if x.startswith("B-")]
        self.scheme = Entities(self.counts, types, self.scheme and self.scheme.name)
        if self.labels != labels:
            raise UserError(
                f"the model's labels are {', '.join(labels)} in this order; this script "
                f"only reads {', '.join(self.labels)} as entities: train with --do_train "
                f"and --init_encoder_only, or pass --tag_scheme={plain_tags.NAME} to use "
                "the labels as they are"
            )

    # --- Rows ------------------------------------------------------------------------

    def featurize(self, example, split):
        if self.flags.document_context:
            words, first = example.context, example.before
            pieces, edges = self.pieces.of_document(words)
            self.counts[
                "have no -DOCSTART- line before them and count as one document"
            ] += example.document == 0
        else:
            words, first = example.words, 0
            pieces, edges = self.pieces.of(words)
        labels, weights = self._labels_of(example, split)
        windows = list(
            tag_rows.windows(
                edges, first, first + len(example.words), self.flags.max_seq_length - 2
            )
        )
        self.counts["are longer than a row and read in parts"] += len(windows) > 1
        vocabulary = self.tokenizer.vocabulary
        for window in windows:
            inside = slice(window.start, window.stop)
            blanks = self._blanks(words[inside], pieces[inside])
            ids = chain.from_iterable(pieces[inside])
            ids, segments = packing.join(vocabulary, ids)
            places = edges[window.own_start : window.own_stop] - edges[window.start]
            places += len(vocabulary.head)
            own = slice(window.own_start - first, window.own_stop - first)
            label_ids = np.zeros(len(ids), np.int64)
            label_weights = np.zeros(len(ids), np.float32)
            label_ids[places], label_weights[places] = labels[own], weights[own]
            fields = {"label_ids": label_ids, "label_weights": label_weights}
            yield Row(ids, segments, fields, notes=(own, places), blanks=blanks)

    def _blanks(self, words, pieces):
        """How many of them are spaces that the vocabulary does not have."""
        unknown = [self.tokenizer.vocabulary.unk_id]
        pairs = zip(words, pieces, strict=True)
        return sum(word == SPACE and ids == unknown for word, ids in pairs)

    def _labels_of(self, example, split):
        if self.scheme.is_by_character:
            self.counts["tokens are spaces, read as [UNK] and not scored"] += (
                example.words.count(SPACE)
            )
        if example.tags is None:
            number = len(example.words)
            return np.zeros(number, np.int64), np.ones(number, np.float32)
        return self.scheme.encode(example.tags, split)

    def objective(self):
        objective = tasks.Tagging(len(self.labels))
        loss = self.flags.label_loss(self.labels, self.training_labels)
        return WithLabelLoss(objective, **loss) if loss else objective

    # --- Numbers ---------------------------------------------------------------------

    def score(self, predictions):
        return self.scheme.score(predictions.examples, self._logits(predictions))

    def _logits(self, predictions):
        """For each example, float32 [words, labels]."""
        number = len(self.labels)
        logits = [np.empty((len(e.words), number)) for e in predictions.examples]
        for i, notes in enumerate(predictions.notes):
            own, places = notes
            example = predictions.example_numbers[i]
            logits[example][own] = predictions.outputs["logits"][i, places]
        return logits

    def trivial_score(self, examples):
        return self.scheme.trivial_score(examples)

    def judge(self, predictions):
        examples, logits = predictions.examples, self._logits(predictions)
        return list(chain.from_iterable(map(self.scheme.judge, examples, logits)))

    # --- Answers ---------------------------------------------------------------------

    def answers(self, predictions):
        logits = self._logits(predictions)
        return [
            self.scheme.answer(_request_words(example.words), of_words)
            for example, of_words in zip(predictions.examples, logits, strict=True)
        ]

    def prediction_files(self, predictions):
        added = {}
        answers = self.answers(predictions)
        for example, answer in zip(predictions.examples, answers, strict=True):
            added |= zip(example.lines, answer["tags"], strict=True)
        path = os.path.join(self.flags.data_dir, self.flags.test_file)
        layout = self._layout_of(path, has_tags=False)
        lines = layout.with_tags(self.test_lines, added)
        return {"predictions.txt": "".join(f"{line}\n" for line in lines)}

    # --- Export ----------------------------------------------------------------------

    def samples(self):
        sentences, before = [], 0
        for text in _SAMPLES:
            words = tuple(text.split())
            sentences.append(
                tag_files.Sentence(words, None, range(len(words)), 1, before)
            )
            before += len(words)
        return list(tag_files.in_documents(sentences))

    def request(self, example):
        request = {"words": _request_words(example.words)}
        if self.flags.document_context:
            most = self.flags.max_seq_length - 2  # words that fit in a row
            start, stop = example.before, example.before + len(example.words)
            before = example.context[max(start - most, 0) : start]
            after = example.context[stop : stop + most]
            request["before"] = _request_text(before)
            request["after"] = _request_text(after)
        return request

    def serve(self, tokenizer, predict, words, **texts):
        context = tags_graph.Context(**texts) if self.flags.document_context else None
        labels, probabilities = tags_graph.label(
            tokenizer, predict, words, self.flags.max_seq_length, context
        )
        answers = self.scheme.serve(words, labels)
        return answers | {"probabilities": probabilities}

    explains = True

    def scores_to_explain(self, tokenizer, predict, words, **texts):
        """Of words outside of entities, nothing is explained."""
        context = tags_graph.Context(**texts) if self.flags.document_context else None
        asked = tags_graph.place(tokenizer, words, self.flags.max_seq_length, context)
        logits = run_in_chunks(predict, asked.batch)["logits"]
        labels = tf.argmax(
            tf.gather_nd(logits, asked.places), axis=1, output_type=tf.int32
        )
        is_explained = tf.gather(
            [label != tags.OUTSIDE for label in self.labels], labels
        )
        places, cells, labels = (
            tf.boolean_mask(x, is_explained)
            for x in (asked.places, tf.cast(asked.cells, tf.int32), labels)
        )
        pieces = tokenizer.encoded[0][0]
        word = row_numbers(pieces.row_limits())
        return Scores(
            asked.batch,
            places[:, 0],
            {"logits": tf.stack([places[:, 1], labels], axis=1)},
            tf.ones_like(labels, tf.float32),
            cells,
            words=tf.cast(tf.gather(asked.every_cell, word), tf.int32),
            labels={
                "label": tf.tensor_scatter_nd_update(
                    tf.fill(tf.shape(words), ""), cells, tf.gather(self.labels, labels)
                )
            },
        )


def _request_words(words):
    """Words for a request; an empty one is replaced by another without pieces."""
    return [word or "\u200b" for word in words]


def _request_text(words):
    """Words as a text for a request, in which spaces separate them."""
    return " ".join(word.replace(" ", "\u00a0") for word in _request_words(words))


def make(model: TrainableModel) -> Tagger:
    """The task that the flags of a model describe."""
    return Tagger(model.flags, model.tokenizer)


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
