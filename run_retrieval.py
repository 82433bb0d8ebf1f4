"""Trains sentence vectors: texts that mean the same, or fit, get vectors that are near.

    python run_retrieval.py --do_train --do_eval --do_export --train_kind=pairs \\
        --data_dir=pairs --output_dir=vectors_output \\
        --init_checkpoint=uncased_L-12_H-768_A-12 --train_batch_size=64

A file has pairs of texts that fit (pairs), texts that fit and others that do not
(triplets), pairs with scores (scored_pairs), texts with labels (labelled_texts) or plain
texts (texts). docs/vectors.md tells more.
"""

import collections
import dataclasses
import functools
import os
import weakref
from collections.abc import Mapping

import command_line
import options
from errors import UserError
from files import tables
from modeling.architectures.features import TOKEN_POOLINGS
from text.instances import packing
from text.tasks import retrieval_files, text_groups
from training.finetuning.options import FineTuningOptions

_LOSSES = ("in_batch_negatives", "triplet_margin", "cosine_error", "cosent")
_NEGATIVES = ("triplets", "nli")  # kinds whose texts have others that do not fit
_OF_LOSSES = {  # flags -> the losses that have them
    "temperature": ("in_batch_negatives", "cosent"),
    "symmetric": ("in_batch_negatives",),
    "triplet_margin": ("triplet_margin",),
}
_COLLECTION = "collection"
_EVALUATED = (
    *(kind for kind in text_groups.KINDS if kind not in ("texts", "labelled_texts")),
    _COLLECTION,
)
_MINED = "train_texts"  # the set whose texts are searched for negatives
_PART = "part"  # of another set, to compare exports on


@dataclasses.dataclass(frozen=True)
class Options(FineTuningOptions):
    data_dir: str = options.field(help="Folder of the files.")
    train_file: str = options.field(
        "train.tsv",
        help="Training set, in data_dir. The suffix gives the format: .tsv, .csv (with a "
        "header), .jsonl or .json; a file of plain texts may have any other suffix and one "
        "text per line.",
    )
    dev_file: str = options.field("dev.tsv", help="Dev set.")
    test_file: str = options.field("test.tsv", help="Test set.")
    train_kind: str = options.field(
        "pairs",
        choices=tuple(text_groups.KINDS),
        help="What the training set has. pairs: texts that fit. triplets: the same, and "
        "texts that do not. scored_pairs: how well they fit, a number. nli: sentences and "
        "whether one follows from the other, which makes triplets. squad: SQuAD's JSON, "
        "questions and their paragraphs. labelled_texts: pairs are drawn, of texts with "
        "one label and with two. texts: each with itself, which dropout makes two.",
        identity=True,
    )
    dev_kind: str | None = options.field(
        None,
        choices=_EVALUATED,
        help="What dev and test set have; by default, the same, or scored_pairs. "
        "collection: data_dir has corpus.jsonl and queries.jsonl (or .tsv), and dev and "
        "test set, in its folder qrels, say which passages are relevant, as in BEIR.",
    )
    rerank_with: str | None = options.field(
        None,
        help="Let this export of run_classifier.py, which reads two texts, score the first "
        "passages of each query again, and report the scores before and after.",
    )
    rerank_top: int = options.field(
        100,
        help="How many of the first passages to rerank.",
        at_least=1,
        at_most=100,
        only_for={"rerank_with": options.GIVEN},
    )
    mine_negatives: int | None = options.field(
        None,
        help="With --do_predict: write mined_negatives.jsonl, in place of the answers: the "
        "pairs of the training set, each with up to this many texts of it that the model "
        "confuses with the one that fits. Train on it with --train_kind=triplets.",
        at_least=1,
        at_most=1000,
        only_for={"do_predict": "true"},
    )
    text_a_column: str | None = options.field(
        None, help="Column of the first text of a pair, or of the only one."
    )
    text_b_column: str | None = options.field(
        None, help="Column of the text that is compared with it."
    )
    negative_columns: list[str] = options.field(
        [],
        help="triplets: columns of texts that do not fit; in JSON, one may have a list of "
        "them.",
        distinct=True,
    )
    score_column: str | None = options.field(None, help="scored_pairs: the number.")
    label_column: str | None = options.field(
        None, help="nli and labelled_texts: the label."
    )
    score_range: list[float] = options.field(
        [0.0, 1.0], help="scored_pairs: the lowest and the highest score."
    )
    pairs_per_text: int = options.field(
        20,
        help="labelled_texts: for each text, draw this many pairs with the same label, and "
        "as many with another one.",
        at_least=1,
        at_most=10_000,
        only_for={"train_kind": "labelled_texts"},
    )
    loss: str | None = options.field(
        None,
        choices=_LOSSES,
        help="in_batch_negatives: find the text that fits among all of the batch. "
        "triplet_margin: nearer than the texts that do not fit, by --triplet_margin. "
        "cosine_error: the square of cosine minus score. cosent: cosines in the order of "
        "the scores. By default, cosent or cosine_error for pairs with scores or drawn "
        "from labels, otherwise in_batch_negatives.",
        identity=True,
    )
    temperature: float = options.field(
        0.05,
        help="in_batch_negatives and cosent: divides cosines.",
        above=0,
        identity=True,
    )
    symmetric: bool = options.field(
        False,
        help="in_batch_negatives: also find the first text of each pair, given the other.",
        identity=True,
    )
    triplet_margin: float = options.field(
        0.5,
        help="By how much the distance must be less, 1 - cosine or, with "
        "--normalize=false, Euclidean.",
        above=0,
        identity=True,
    )
    matryoshka_sizes: list[int] = options.field(
        [],
        help="Also learn the first numbers of each vector as vectors, this many, such as "
        "64,128,256, so that it may be cut to these sizes.",
        at_least=1,
        at_most=1 << 16,
        distinct=True,
        identity=True,
    )
    pooling: str | None = options.field(
        None,
        choices=TOKEN_POOLINGS,
        help="What makes a vector of those of a text's tokens: their mean, by default; "
        "that of [CLS], or of the last; the highest of each column; or a mean in which "
        "later tokens count more. A trained model has its own.",
        identity=True,
    )
    normalize: bool | None = options.field(
        None, help="Give vectors the length 1, by default.", identity=True
    )
    projection_size: int | None = options.field(
        None,
        help="Put a linear layer with this many outputs on the vectors.",
        at_least=1,
        at_most=1 << 16,
        identity=True,
    )
    query_prompt: str | None = options.field(
        None,
        help="What to put before the first text of each pair, such as 'query: '; if pairs "
        "have scores, before both.",
        identity=True,
    )
    passage_prompt: str | None = options.field(
        None, help="What to put before the other texts.", identity=True
    )
    vector_size: int | None = options.field(
        None,
        help="Cut vectors to their first numbers, this many, in evaluations, predictions "
        "and the export.",
        at_least=1,
        at_most=1 << 16,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_seq_length < 3:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least 3"
            )
        if len(self.score_range) != 2 or self.score_range[0] >= self.score_range[1]:
            shown = ",".join(f"{x:g}" for x in self.score_range)
            raise UserError(
                f"--score_range={shown}: pass the lowest and the highest score, such as 0,5"
            )
        tables.check_different(
            self, "text_a_column", "text_b_column", "score_column", "label_column"
        )
        self._check_loss()
        self._check_distillation()
        if self.mine_negatives and text_groups.KINDS[self.train_kind].has_scores:
            raise UserError(
                f"--mine_negatives: --train_kind={self.train_kind} has scores or labels; "
                "mining needs pairs, triplets, nli or squad"
            )
        if self.rerank_with and self.has_scores:
            raise UserError(
                f"--rerank_with has no effect with --dev_kind={self.evaluated_kind}; "
                "reranking is for a search, as in pairs or collection"
            )

    def _check_distillation(self):
        if self.lm_loss_weight:
            raise UserError(
                "--lm_loss_weight: vectors are learned without a language model; remove it"
            )
        is_divided = self.gradient_accumulation_steps > 1 or self.distribution != "one"
        if (
            is_divided
            and self.distill_from
            and self.distillation("mse").compares_layers
        ):
            raise UserError(
                "--distill_from: layers are compared on one device, without "
                "--gradient_accumulation_steps; remove that, or the losses of layers"
            )

    @property
    def has_scores(self) -> bool:
        """Whether dev and test set have scores of pairs."""
        kind = text_groups.KINDS.get(self.evaluated_kind)
        return kind is not None and kind.has_scores

    def _check_loss(self):
        has_scores = text_groups.KINDS[self.train_kind].has_scores
        needs_scores = self.loss_in_use in ("cosine_error", "cosent")
        if has_scores != needs_scores:
            fitting = _LOSSES[2:] if has_scores else _LOSSES[:2]
            raise UserError(
                f"--loss={self.loss}: --train_kind={self.train_kind} has "
                f"{'scores' if has_scores else 'no scores'}; pass {' or '.join(fitting)}"
            )
        if self.loss_in_use == "triplet_margin" and self.train_kind not in _NEGATIVES:
            raise UserError(
                f"--loss=triplet_margin: --train_kind={self.train_kind} has no texts that "
                f"do not fit; pass --train_kind={' or '.join(_NEGATIVES)}, or another loss"
            )
        for item in dataclasses.fields(self) if self.do_train else ():
            losses = _OF_LOSSES.get(item.name, _LOSSES)
            is_set = getattr(self, item.name) != options.default_of(item)
            if is_set and self.loss_in_use not in losses:
                raise UserError(
                    f"--{item.name} has no effect with --loss={self.loss_in_use}; it is "
                    f"for {' and '.join(losses)}"
                )
        of_batch = self.loss_in_use in ("in_batch_negatives", "cosent")
        if of_batch and self.do_train and 1 in self.train_batch_size:
            raise UserError(
                f"--train_batch_size=1: --loss={self.loss_in_use} compares the rows of a "
                "batch with each other; pass at least 2"
            )

    @property
    def loss_in_use(self) -> str:
        usual = {"scored_pairs": "cosent", "labelled_texts": "cosine_error"}
        return self.loss or usual.get(self.train_kind, "in_batch_negatives")

    @property
    def evaluated_kind(self) -> str:
        """What dev and test set have."""
        same = self.train_kind if self.train_kind in _EVALUATED else "scored_pairs"
        return self.dev_kind or same

    def columns(self, kind: str) -> text_groups.TextColumns:
        """Of files of a kind: those of the flags, otherwise the usual ones."""
        return text_groups.KINDS[kind].columns.with_names(
            first=self.text_a_column,
            second=self.text_b_column,
            negatives=tuple(self.negative_columns),
            score=self.score_column,
            label=self.label_column,
        )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import metrics
from training.backend import tf
from training.run.settle import TrainableModel
from modeling import vector_losses
from modeling.objectives.sentence_vectors import OUTPUT, SentenceVectors
from serving import rerank
from text.graphs import packing_graph
from text.graphs.row_chunks import run_in_chunks
from text.records.rows import Field, Row
from training.finetuning import finetune, ranking_metrics, retrieval, teachable
from training.finetuning.task import SAMPLE_TEXTS, ServedTask
from training.interchange.vector_settings import TASK, VectorSettings, read_settings

# Flags that are settings of a model, which it knows after its training.
_LEARNED = (
    *("pooling", "normalize", "projection_size"),
    *("query_prompt", "passage_prompt"),
)


class SentenceVectorTask(ServedTask):
    """Vectors of texts; a set is scored by the cosines of its texts.

    Args:
        known: the settings of the model to continue, if there is one.
    """

    form = "vector"

    def __init__(self, flags: Options, tokenizer, known: VectorSettings | None = None):
        super().__init__(tokenizer, flags.data_dir)
        self.flags = flags
        given = {name: getattr(flags, name) for name in _LEARNED}
        given = {name: value for name, value in given.items() if value is not None}
        given["max_seq_length"] = flags.max_seq_length
        self.vectors = (known or VectorSettings())._replace(**given)
        if (
            self.vectors.pooling == "cls"
            and tokenizer
            and not tokenizer.vocabulary.head
        ):
            self.vectors = self.vectors._replace(pooling="last")  # there is [CLS]
        # By set; a search has a collection.
        self.judged: dict[
            str, text_groups.JudgedTexts | retrieval_files.TextCollection
        ] = {}
        self._left_out: dict[str, collections.Counter] = {}  # by set, of its file
        self.metric = "spearman" if flags.has_scores else "ndcg@10"
        if flags.mine_negatives:
            self.test_sets = (_MINED,)
        if flags.rerank_with:
            rerank.check(flags.rerank_with)
        # The last predictions that were searched, and what was found.
        self._searched, self._found = (lambda: None), {}

    # --- Files -----------------------------------------------------------------------

    def read(self, split):
        """The groups of the training set; of others, the texts, each once."""
        flags = self.flags
        names = {"train": flags.train_file, "dev": flags.dev_file}
        names |= {_MINED: flags.train_file}
        name = names.get(split, flags.test_file)
        is_train = split in ("train", _MINED)
        kind = flags.train_kind if is_train else flags.evaluated_kind
        if kind == _COLLECTION:
            found = retrieval_files.read_collection(
                flags.data_dir, name, flags.max_line_mb
            )
            return self._keep(split, found)
        path = os.path.join(flags.data_dir, name)
        left_out = self._left_out[split] = collections.Counter()
        settings = text_groups.GroupSettings(
            tuple(flags.score_range), flags.pairs_per_text, flags.seed
        )
        columns, most = flags.columns(kind), flags.max_line_mb
        groups = text_groups.read(path, kind, columns, settings, most, left_out)
        if split == "train":
            if flags.needs_labels:  # otherwise a teacher says what fits
                loss = flags.loss_in_use
                groups = teachable.keep_teachable(path, groups, loss, left_out)
            return [self._with_prompts(group) for group in groups]
        judged = text_groups.judged_texts(groups)
        if split in self.eval_sets:
            teachable.check_scores(path, judged.scores)
        if judged.scores is None and split != _MINED:
            judged = retrieval.collection_of(judged)
        return self._keep(split, judged)

    def part(self, split, examples, most):
        """A search among fewer passages."""
        return _PART, self._keep(_PART, retrieval.part_of(self.judged[split], most))

    def _keep(self, split, judged):
        self.judged[split] = judged
        queries, passages = retrieval.texts_of(judged)
        first, other = self.vectors.query_prompt, self.vectors.passage_prompt
        other = first if self.flags.has_scores else other
        return [
            *(first + text for text in queries),  # no copy without one
            *(other + text for text in passages),
        ]

    def _with_prompts(self, group):
        first, other = self.vectors.query_prompt, self.vectors.passage_prompt
        if text_groups.KINDS[self.flags.train_kind].is_symmetric:
            other = first
        query, *others = group.texts
        texts = (f"{first}{query}", *(f"{other}{text}" for text in others))
        return group._replace(texts=texts)

    def layout(self, examples, max_seq_length):
        layout = super().layout(examples, max_seq_length)
        if isinstance(examples[0], str):
            return layout
        number = max(len(group.texts) for group in examples)
        fields = {"text_keys": Field("int64", (number,))}
        if examples[0].score is not None:
            fields["scores"] = Field("float32")
        return dataclasses.replace(layout, num_choices=number, labels=fields)

    def featurize(self, example, split):
        self.counts |= self._left_out.get(split, {})
        if isinstance(example, str):
            yield Row(*self._sequence(example))
            return
        ids, segments = zip(*map(self._sequence, example.texts), strict=True)
        score = {} if example.score is None else {"scores": example.score}
        yield Row(ids, segments, {"text_keys": example.keys, **score})

    def _sequence(self, text):
        ids, segments, was_cut = packing.pack(
            self.tokenizer.vocabulary,
            self.tokenizer.encode(text),
            None,
            self.flags.max_seq_length,
        )
        self.counts["texts were cut to --max_seq_length"] += was_cut
        return ids, segments

    def objective(self):
        flags, vectors = self.flags, self.vectors
        name = flags.loss_in_use
        settings = {
            "in_batch_negatives": {
                "temperature": flags.temperature,
                "symmetric": flags.symmetric,
            },
            "triplet_margin": {
                "margin": flags.triplet_margin,
                "normalized": vectors.normalize,
            },
            "cosent": {"temperature": flags.temperature},
        }
        loss = getattr(vector_losses, name)
        return SentenceVectors(
            functools.partial(loss, **settings.get(name, {})),
            of_whole_batch=loss in vector_losses.OF_WHOLE_BATCH,
            metric=vector_losses.METRICS[loss],
            pooled_by=vectors.pooling,
            projection_size=vectors.projection_size,
            projection_activation=vectors.projection_activation,
            normalized=vectors.normalize,
            size=flags.vector_size,
            widths=flags.matryoshka_sizes,
        )

    def state(self):
        return self.vectors._asdict()

    def description(self):
        vectors = self.vectors
        described = {"similarity": "cosine" if vectors.normalize else "dot"}
        described["vector_size"] = self.flags.vector_size or vectors.projection_size
        if prompts := vectors.prompts:
            default = {"prompt": prompts["passage"]}
            described |= {"prompts": prompts, "defaults": default}
        return super().description() | described

    def restore(self, state: Mapping):
        if self.flags.do_train:
            return None  # a teacher's
        learned = read_settings({"task": TASK} | dict(state))
        for name in _LEARNED:
            given = getattr(self.flags, name)
            if given not in (None, getattr(learned, name)):
                raise UserError(
                    f"--{name}={given}: the model was trained with "
                    f"{getattr(learned, name)}; remove it"
                )
        own, length = learned.max_seq_length, self.flags.max_seq_length
        self.vectors = learned._replace(max_seq_length=length)
        if own in (None, length):
            return None
        return f"--max_seq_length={length}: the model was trained with {own}"

    # --- Numbers ---------------------------------------------------------------------

    def _vectors(self, predictions):
        """float32 [queries, d] and [passages, d]."""
        number = len(self.judged[predictions.split].queries)
        vectors = predictions.outputs[OUTPUT]
        return vectors[:number], vectors[number:]

    def _cosines(self, predictions):
        judged = self.judged[predictions.split]
        return retrieval.cosines(judged, *self._vectors(predictions))

    @functools.cached_property
    def _reranker(self):
        return rerank.Reranker(self.flags.rerank_with)

    def _runs(self, predictions):
        """What a search finds, by name: "" by vectors, "reranked_" after reranking."""
        if self._searched() is not predictions:
            judged = self.judged[predictions.split]
            run = retrieval.rank(judged, *self._vectors(predictions))
            self._searched, self._found = weakref.ref(predictions), {"": run}
            if self.flags.rerank_with and predictions.split != _PART:
                self._found["reranked_"] = retrieval.rerank(
                    judged, run, self._reranker, self.flags.rerank_top
                )
        return self._found

    def score(self, predictions):
        judged = self.judged[predictions.split]
        if self.flags.has_scores:
            scores = ("spearman", "pearson")
            return metrics.scores(scores, judged.scores, self._cosines(predictions), [])
        return {
            f"{name}{metric}": value
            for name, run in self._runs(predictions).items()
            for metric, value in ranking_metrics.score_run(judged.relevant, run).items()
        }

    def judge(self, predictions):
        judged = self.judged[predictions.split]
        if self.flags.has_scores:
            values, limits = self._cosines(predictions), self.flags.score_range
            return retrieval.judge_pairs(judged, values, limits)
        *_, last = self._runs(predictions).values()
        return retrieval.judge_search(judged, last)

    def prediction_files(self, predictions):
        if predictions.split == _MINED:
            lines = retrieval.mine_negatives(
                self.judged[_MINED],
                *self._vectors(predictions),
                self.flags.mine_negatives,
            )
            return {"mined_negatives.jsonl": "".join(lines)}
        if self.flags.has_scores:
            scores = self._cosines(predictions).tolist()
            return {"test_results.tsv": "".join(f"{x:.6f}\n" for x in scores)}
        return {
            f"{name}run.trec": "".join(retrieval_files.run_lines(run, self.title))
            for name, run in self._runs(predictions).items()
        }

    # --- Export ----------------------------------------------------------------------

    @property
    def inputs(self):
        return {"text": "text"} | ({"prompt": "text"} if self.vectors.prompts else {})

    def samples(self):
        return list(SAMPLE_TEXTS)

    def request(self, example):
        return {"text": example} | ({"prompt": ""} if self.vectors.prompts else {})

    def answers(self, predictions):
        return retrieval.VectorAnswers(predictions.outputs[OUTPUT])

    def serve(self, tokenizer, predict, text, prompt=None):
        if prompt is not None:
            text = tf.strings.join([prompt, text])
        ids = tokenizer.encode(text)
        batch = packing_graph.pack(tokenizer, ids, None, self.flags.max_seq_length)
        return {"vector": run_in_chunks(predict, batch)[OUTPUT]}


def make(model: TrainableModel) -> SentenceVectorTask:
    """The task that the flags of a model describe."""
    known = read_settings(model.folder.text[1])
    if not known and model.source:
        known = read_settings(model.source.task)
    flags = model.flags
    if flags.do_train and flags.train_kind == "texts" and flags.needs_labels:
        teachable.check_dropout(model.config, model.config_file)
    return SentenceVectorTask(flags, model.tokenizer, known)


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
