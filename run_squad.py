"""Fine-tunes an encoder to find the answer to a question in a text: SQuAD, KorQuAD 1.0,
KLUE-MRC.

    python run_squad.py --do_train --do_predict --do_eval \\
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json \\
        --output_dir=squad_output \\
        --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \\
        --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2

This command reaches F1 88.4 and EM 81.2 on the dev set of 1.1 (2018 README, BERT-Base).
For 2.0 and KLUE-MRC, add --version_2_with_negative.
"""

import collections
import dataclasses
import functools
import json

import numpy as np
from absl import logging

import command_line
import extensions
import options
from errors import UserError
from modeling.objectives.span_head import SpanHead
from text.tasks import answer_spans, squad
from training.finetuning import squad_metrics
from training.finetuning.options import FineTuningOptions

_FIRST_UNIQUE_ID = 1000000000
_NOTHING = "(no answer)"
SPAN_HEADS: dict[str, SpanHead] = extensions.load_rows("span_heads", ["independent"])
_NUM_STARTS = ", ".join(f"{h.num_starts} for {name}" for name, h in SPAN_HEADS.items())

# Questions and their texts, to check an export on.
_SAMPLES = (
    ("Who wrote it?", "Jane Austen wrote it in 1813, in Chawton."),
    ("What is here?", ""),
    ("", "Nobody asked."),
    ("대한민국의 수도는?", "서울은 대한민국의 수도이다."),
    ("中国的首都是哪里？", "北京是中国的首都。"),
    ("Who laughs? 🤔", "A cafe\u0301 😀 laughs,\n  another 😢 cries."),
)


@dataclasses.dataclass(frozen=True)
class Options(FineTuningOptions):
    train_file: str | None = options.field(
        None, help="Questions to train on, in SQuAD's JSON format.", common=True
    )
    predict_file: str | None = options.field(
        None,
        help="Questions to answer, in the same format; --do_eval needs their answers. An "
        "id that is a whole number becomes a string, as all JSON keys are.",
        common=True,
    )
    max_seq_length: int = options.override(
        FineTuningOptions,
        "max_seq_length",
        384,
        help="Maximum number of tokens per row: question, window and 3 special tokens.",
    )
    doc_stride: int = options.field(
        128,
        help="Tokens from the start of one window to the start of the next. Windows that "
        "are not longer than this do not overlap.",
        common=True,
    )
    max_query_length: int = options.field(
        64, help="Maximum number of tokens of a question; the rest is cut off."
    )
    n_best_size: int = options.field(
        20,
        help="Number of starts and ends to try per window, and of answers to list.",
        at_least=1,
    )
    max_answer_length: int = options.field(
        30, help="Maximum tokens of an answer.", at_least=1
    )
    verbose_logging: bool = options.field(
        False, help="List each training question whose answer is not in its text."
    )
    version_2_with_negative: bool = options.field(
        False,
        help="Some questions have no answer (SQuAD 2.0, KLUE-MRC).",
        common=True,
    )
    answer_score: str | None = options.field(
        None,
        choices=tuple(squad_metrics.ANSWER_SCORES),
        help="What an answer and the right one have in common: words, F1 as in SQuAD; "
        "characters, F1 as in KorQuAD; rouge_w, the longest run of characters, as in "
        "KLUE-MRC. Each also decides what is left out before answers are compared. By "
        "default, that of the data set that --predict_file is of: KorQuAD's version says "
        "so, KLUE's questions have a guid, and all others are scored by words.",
    )
    null_score_diff_threshold: float = options.field(
        0.0,
        help='With --version_2_with_negative: answer "" if its score exceeds that of the '
        "best text by more than this or, with a --span_head other than independent, if the "
        "logit of no answer exceeds this. --do_eval finds the best value for its set.",
        may_be_infinite=True,
    )
    span_head: str = options.field(
        "independent",
        choices=("independent", *SPAN_HEADS),
        help="independent: BERT's, in which start and end do not depend on each other. In "
        "others, the end depends on the start, and a classifier finds questions without an "
        "answer." + extensions.help_of("span_head"),
    )
    start_n_top: int | None = options.field(
        None,
        help="Number of starts to try per window with a --span_head other than "
        f"independent; by default {_NUM_STARTS or 'that of its release'}.",
        at_most=1000,
        at_least=1,
        only_for={"span_head": options.GIVEN},
    )
    end_n_top: int | None = options.field(
        None,
        help="Number of ends to try per start; same defaults as --start_n_top.",
        at_most=1000,
        at_least=1,
        only_for={"span_head": options.GIVEN},
    )

    def __post_init__(self):
        super().__post_init__()
        self.lengths  # noqa: B018  checked when it is made
        if self.do_train and not (self.train_file or self.unlabeled_file):
            raise UserError("--do_train needs --train_file")
        if self.evaluates and not self.predict_file:
            raise UserError(
                "--do_eval, --eval_every_steps, --early_stopping_patience and a search "
                "need --predict_file"
            )
        if self.do_predict and not self.predict_file:
            raise UserError("--do_predict needs --predict_file")
        if self.compares and not self.predict_file:
            raise UserError(
                f"--export_precision={self.export_precision} needs --predict_file, to "
                "compare the export with float32"
            )

    @property
    def lengths(self) -> answer_spans.Lengths:
        return answer_spans.Lengths(
            self.max_seq_length, self.doc_stride, self.max_query_length
        )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.backend import tf
from training.run.settle import TrainableModel
from modeling.objectives import span_beams, tasks
from serving.integrated_gradients import Scores
from text.graphs import answer_spans_graph, row_chunks
from text.records.rows import Field, Row
from training.finetuning import finetune
from training.finetuning.task import Judgement, ServedTask

# === The task ========================================================================


class Squad(ServedTask):
    """Questions whose answer is a span of a text or, in version 2, may be missing."""

    eval_sets = test_sets = ("dev",)
    has_percentages = True
    form = "span"
    inputs = {"question": "text", "context": "text"}
    # The release's records of a dev set contain unique_ids only.
    fields = {
        name: Field()
        for name in ("unique_ids", "start_positions", "end_positions", "is_impossible")
    }

    def __init__(self, flags: Options, tokenizer):
        super().__init__(tokenizer, flags.predict_file or flags.train_file or "")
        self.flags = flags
        self.version_2 = flags.version_2_with_negative
        self.num_rows = collections.Counter()
        # Questions about one text are adjacent, but all are scored at the end.
        self.document = functools.cache(
            lambda context: answer_spans.Document(tokenizer, context)
        )

    def warnings(self):
        lengths = self.lengths
        if not lengths.always_overlap:
            yield (
                f"--doc_stride={lengths.doc_stride}: windows of {lengths.doc_stride} "
                "tokens or fewer do not overlap (they have "
                f"{lengths.window(lengths.max_query_length)} to {lengths.window(0)}: "
                "--max_seq_length minus the question minus 3), so no window contains an "
                "answer across a border; lower --doc_stride or raise --max_seq_length"
            )

    def settings(self):
        names = "doc_stride max_query_length version_2_with_negative span_head"
        return {name: getattr(self.flags, name) for name in names.split()}

    def state(self):
        return {"span_head": self.flags.span_head} if self.head else {}

    def restore(self, state):
        was = state.get("span_head", "independent")
        if was != self.flags.span_head:
            hint = "only the default can be distilled: leave the flag out for both"
            hint = hint if self.flags.distill_from else "pass the same"
            raise UserError(f"the model has another head, --span_head={was}; {hint}")

    @property
    def head(self) -> SpanHead | None:
        """A head that chooses starts and ends itself."""
        return SPAN_HEADS.get(self.flags.span_head)

    def objective(self):
        if not self.head:
            return tasks.Span()
        flags = self.flags
        words, tops = self.tokenizer.vocabulary, (flags.start_n_top, flags.end_n_top)
        rows = {"document_first": words.document_first, "cls_last": not words.head}
        return span_beams.SpanBeams(self.head, *tops, **rows)

    # --- Files -----------------------------------------------------------------------

    @functools.cached_property
    def answer_score(self) -> squad_metrics.AnswerScore:
        name, path = self.flags.answer_score, self.flags.predict_file
        if name is None:
            name = squad.answer_score(path, self.flags.max_line_mb) if path else "words"
        return squad_metrics.ANSWER_SCORES[name]

    @property
    def metric(self):
        return (
            f"best_{self.answer_score.name}"
            if self.version_2
            else self.answer_score.name
        )

    def read(self, split):
        flags = self.flags
        if split == "train":
            return self._read_training()
        examples = squad.read_to_answer(flags.predict_file, flags.max_line_mb)
        if flags.do_eval or flags.compares:
            squad.check_scorable(examples, flags.predict_file, self.version_2)
        return examples

    def _read_training(self):
        flags, examples = self.flags, []
        files = [flags.train_file] if flags.train_file else []
        for path in [*files, *flags.unlabeled_file]:
            before = len(examples)
            for where, example in squad.read(path, flags.max_line_mb):
                if flags.needs_labels and not self._is_impossible(example):
                    squad.check_trainable(example, where)
                examples.append(example)
            if len(examples) == before:
                raise UserError(f"{path}: contains no questions")
        return examples

    def _is_impossible(self, example):
        return self.version_2 and example.is_impossible

    # --- Rows ------------------------------------------------------------------------

    @property
    def lengths(self) -> answer_spans.Lengths:
        return self.flags.lengths.in_rows_of(self.tokenizer.vocabulary)

    def featurize(self, example, split):
        question = self.tokenizer.encode(example.question)
        document = self.document(example.context)
        answer = self._find_answer(example, document)
        is_impossible = self._is_impossible(example)
        is_used = split != "train" or not self.flags.needs_labels
        if not (is_used or is_impossible or answer):
            self.counts["answers not found in their text and left out"] += 1
            if self.flags.verbose_logging:
                logging.warning(
                    "%s: answer not in its text: %s", example.id, example.answers
                )
            return
        vocabulary = self.tokenizer.vocabulary
        made = list(
            answer_spans.rows(document, question, vocabulary, self.lengths, answer)
        )
        self._count(question, made, answer)
        for row in made:
            labels = {
                "unique_ids": _FIRST_UNIQUE_ID + self.num_rows[split],
                "start_positions": row.start_position,
                "end_positions": row.end_position,
                "is_impossible": int(is_impossible),
            }
            self.num_rows[split] += 1
            yield Row(row.input_ids, row.segment_ids, labels, row.window)

    def _find_answer(self, example, document):
        """The first answer that is in the text."""
        if self._is_impossible(example):
            return None
        return squad.first_answer(document, self.tokenizer, example)

    def _count(self, question, made, answer):
        too_long = len(question) > self.flags.max_query_length
        self.counts["questions cut to --max_query_length"] += too_long
        self.counts["texts without tokens"] += not made
        whole = any(row.end_position != row.window.cls for row in made)
        self.counts["answers not in any window"] += bool(made and answer and not whole)

    # --- Answers ---------------------------------------------------------------------

    def _answers(self, predictions) -> list[answer_spans.Answer]:
        documents = [self.document(example.context) for example in predictions.examples]
        rows = documents, predictions.example_numbers, predictions.notes
        if self.head:
            spans = answer_spans.TopSpans.of(predictions.outputs)
            return answer_spans.best_of_top_spans(*rows, spans, self._search)
        # Differs from the release, where padding may be among the best starts and ends.
        # Here padding depends on the other rows of a batch, and answers must not.
        sizes = [window.size for window in predictions.notes]
        logits = [predictions.outputs[f"{side}_logits"] for side in ("start", "end")]
        is_token = np.arange(logits[0].shape[1]) < np.array(sizes, int)[:, None]
        logits = (np.where(is_token, values, -np.inf) for values in logits)
        return answer_spans.best_answers(*rows, *logits, self._search)

    @property
    def _search(self):
        flags = self.flags
        return answer_spans.Search(
            flags.n_best_size, flags.max_answer_length, self.version_2
        )

    def _choose(self, answer):
        return answer.choose(self.flags.null_score_diff_threshold)

    def score(self, predictions):
        squad.check_scorable(
            predictions.examples, self.flags.predict_file, self.version_2
        )
        return self._evaluate(predictions.examples, self._answers(predictions))

    def _evaluate(self, examples, answers):
        null = {}
        if self.version_2:
            null["texts"] = [a.best.text if a.best else "" for a in answers]
            null["null_odds"] = [a.null_odds for a in answers]
        return squad_metrics.evaluate(
            [example.references for example in examples],
            [self._choose(answer).text for answer in answers],
            version_2=self.version_2,
            by=self.answer_score,
            **null,
        )

    def trivial_score(self, examples):
        references = [example.references for example in examples]
        texts = [""] * len(examples)
        _, overlaps = self._compare(references, texts)
        return 100 * float(overlaps.mean())

    def _compare(self, references, texts):
        compare = functools.partial(squad_metrics.score, version_2=self.version_2)
        return compare(references, texts, by=self.answer_score)

    def judge(self, predictions):
        answers = self._answers(predictions)
        return list(map(self._judgement, predictions.examples, answers))

    def _judgement(self, example, answer):
        chosen = self._choose(answer)
        text = chosen.text
        (exact,), (overlap,) = self._compare([example.references], [text])
        gold = text if exact else " / ".join(dict.fromkeys(example.references))
        every = list(answer.nbest)
        if answer.nothing and self.version_2:
            every.append(answer.nothing)
        odds = {span.text or _NOTHING: span.probability for span in every}
        right = set(example.references or [""])
        odds[gold or _NOTHING] = sum(
            span.probability for span in every if span.text in right
        )
        return Judgement(
            f"{example.question}\n{example.id}\n{example.context}",
            gold or _NOTHING,
            text or _NOTHING,
            error=chosen.probability * float(1 - overlap),
            probabilities=odds,
        )

    def prediction_files(self, predictions):
        answers = self._answers(predictions)
        by_id = dict(zip((e.id for e in predictions.examples), answers, strict=True))
        contents = {
            "predictions.json": {id: self._choose(a).text for id, a in by_id.items()},
            "nbest_predictions.json": {
                id: [_entry(span) for span in a.nbest] for id, a in by_id.items()
            },
        }
        if self.version_2:
            odds = {id: answer.null_odds for id, answer in by_id.items()}
            contents["null_odds.json"] = odds
        if self.version_2 and any(e.answers for e in predictions.examples):
            values = self._evaluate(predictions.examples, answers)
            contents["null_threshold.json"] = {
                "null_score_diff_threshold": values[f"{self.metric}_thresh"],
                **{k: v for k, v in values.items() if k.startswith("best_")},
            }
        return {
            name: json.dumps(values, indent=4) + "\n"
            for name, values in contents.items()
        }

    # --- Export ----------------------------------------------------------------------

    def description(self):
        names = ("n_best_size", "max_answer_length", "null_score_diff_threshold")
        return super().description() | {n: getattr(self.flags, n) for n in names}

    def request(self, example):
        return {name: getattr(example, name) for name in self.inputs}

    def answers(self, predictions):
        return [self._to_json(answer) for answer in self._answers(predictions)]

    def _to_json(self, answer):
        chosen = self._choose(answer)
        served = {
            "answer": chosen.text,
            "start": chosen.start,
            "end": chosen.end,
            "probability": chosen.probability,
            "score": chosen.start_logit + chosen.end_logit,
        }
        return served | ({"null_odds": answer.null_odds} if self.version_2 else {})

    def samples(self):
        years = range(1500, 1500 + self.flags.max_seq_length)  # several windows
        long = " ".join(f"House {n - 1499} was built in {n}." for n in years)
        asked = (*_SAMPLES, ("When was house 7 built?", long))
        return [
            squad.Question(str(number), question, context, (), False)
            for number, (question, context) in enumerate(asked)
        ]

    def serve(self, tokenizer, predict, *, question, context):
        _, windows, documents, outputs = self._read_in_graph(
            tokenizer, predict, question, context
        )
        if self.head:
            spans = answer_spans.TopSpans.of(outputs)
            return answer_spans_graph.best_of_top_spans(
                documents, windows, spans, *self._search_in_graph
            )
        return answer_spans_graph.best_answers(
            documents, windows, *_logits(outputs), *self._search_in_graph
        )

    @property
    def explains(self):
        return not self.head  # whose outputs are the best spans, not logits of places

    def scores_to_explain(self, tokenizer, predict, *, question, context):
        batch, windows, documents, outputs = self._read_in_graph(
            tokenizer, predict, question, context
        )
        best = answer_spans_graph.best_places(
            documents, windows, *_logits(outputs), *self._search_in_graph
        )
        return Scores(
            batch,
            best["row"],
            {f"{side}_logits": best[side][:, None] for side in ("start", "end")},
            tf.ones_like(best["row"], tf.float32),
            best["question"][:, None],
        )

    def _read_in_graph(self, tokenizer, predict, question, context):
        """Rows, their windows, the documents, and the network's outputs."""
        questions = tokenizer.encode(question)
        ids, starts, ends = tokenizer.encode_with_offsets(context)
        windows = answer_spans_graph.windows(questions, ids, self.lengths)
        batch = answer_spans_graph.rows(questions, ids, windows, tokenizer)
        outputs = row_chunks.run_in_chunks(predict, batch)
        documents = answer_spans_graph.Documents(context, starts, ends)
        return batch, windows, documents, outputs

    @property
    def _search_in_graph(self):
        return self._search, self.flags.null_score_diff_threshold


def _logits(outputs):
    """Of starts and ends."""
    return [outputs[f"{side}_logits"] for side in ("start", "end")]


def _entry(span):
    names = ("text", "probability", "start_logit", "end_logit")
    return {name: getattr(span, name) for name in names}


def make(model: TrainableModel) -> Squad:
    """The task that the flags of a model describe."""
    return Squad(model.flags, model.tokenizer)


def main(flags: Options) -> None:
    """Does what the flags ask for.

    Raises:
        UserError: flags, files, config or checkpoint do not match.
    """
    model = TrainableModel(flags)
    finetune.finetune(make(model), model)


if __name__ == "__main__":
    command_line.run(main, Options)
