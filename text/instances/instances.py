"""Declares what a kind of rows must define: which spans form a row, and how it is laid out.

A kind has a name in text/instances/kinds.py. Generation, inspection and readable output
rely only on what is declared here.
"""

import abc
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import options
from text.corpus.store import Corpus
from text.instances.figures import Figures
from text.records.schema import Feature
from text.tokenizers.vocabulary import Vocabulary

# Mean share of a row with tokens, below which shorter rows are better.
_POORLY_FILLED = 0.5


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The flags that determine the contents of rows of any kind."""

    do_whole_word_mask: bool = options.field(
        False, help="Mask all pieces of a word, or none."
    )
    max_seq_length: int = options.field(128, help="Tokens per record, at least 8.")
    max_predictions_per_seq: int = options.field(
        20, help="Maximum number of tokens to predict per record."
    )
    masked_lm_prob: float = options.field(0.15, help="Share of tokens to predict.")
    short_seq_prob: float = options.field(
        0.1, help="Share of documents in each pass that get shorter sequences."
    )
    word_boundaries: str = options.field(
        "pieces",
        choices=("pieces", "spaces"),
        help="What counts as a whole word. pieces: a piece and the ## pieces after it, as "
        "in the release, or for byte-level BPE anything from one space to the next. "
        "spaces: anything between two spaces, for text that was segmented into words "
        "beforehand.",
    )
    ngram: int = options.field(
        1,
        help="Mask runs of up to this many words (without --do_whole_word_mask, tokens); "
        "n of them with probability proportional to 1/n. ALBERT uses 3.",
    )
    favor_shorter_ngram: bool = options.field(
        True,
        help="If false, the longest runs are the most likely, the shortest the least.",
    )
    mask_share: float = options.field(
        0.8, help="Share of the predicted tokens that become [MASK]."
    )
    random_share: float = options.field(
        0.1, help="Share of the predicted tokens that are replaced by a random one."
    )
    random_next_sentences: bool = options.field(
        True,
        help="Take half of the second sentences from other documents. If false, every "
        "pair is consecutive; use this for text that is a single document.",
    )
    lone_sentences: str = options.field(
        "extend",
        choices=("extend", "random"),
        help="For --instances=sentence_order: what becomes of a sentence that fills a "
        "record by itself or is left over at the end of a document. extend: the first is "
        "joined with the sentence after it and truncated, the other is skipped, so that "
        "every pair is consecutive. random: both are paired with text from another "
        "document and labeled as swapped, as in ALBERT's release.",
    )

    rows_per_batch: int = options.field(
        0,
        help="For --instances=contiguous: how many rows a batch has, the "
        "--train_batch_size of run_pretraining.py. The text is cut into this many parts.",
    )
    reuse_len: int = options.field(
        0,
        help="For --instances=contiguous: how many tokens of a row continue the row of the "
        "batch before; 0 means half of --max_seq_length.",
    )

    @property
    def words_from_spaces(self) -> bool:
        return self.do_whole_word_mask and self.word_boundaries == "spaces"


class Layout(NamedTuple):
    """Where things are in a batch of records.

    Attributes:
        text: int64 [batch, seq_length], input_ids before masking.
        lengths: int64 [batch], number of tokens, special ones included.
        is_predicted: bool [batch, num_predictions].
    """

    text: np.ndarray
    lengths: np.ndarray
    is_predicted: np.ndarray

    def words(self, vocabulary: Vocabulary) -> np.ndarray:
        """bool [batch, seq_length]: tokens that are neither [CLS] nor [SEP]."""
        is_token = np.arange(self.text.shape[1]) < self.lengths[:, None]
        is_special = vocabulary.is_separator(self.text)
        if vocabulary.has_cls:
            is_special |= self.text == vocabulary.cls_id
        return is_token & ~is_special

    def of_rows(self, rows: list[int]) -> "Layout":
        return Layout(*(values[rows] for values in self))


class Rule(NamedTuple):
    """What a feature must be, and where it is not: bool [batch, length]."""

    feature: str
    is_broken: np.ndarray
    text: str


class Masks(abc.ABC):
    """What records say about the tokens to predict.

    Args:
        recipe: the flags of the records.

    Attributes:
        are_drawn: whether the records say which tokens to predict.
        passes_differ: whether each pass over a text predicts different tokens.
        given: the features from which an objective takes what to predict, instead of
            drawing it.
    """

    given: tuple[str, ...] = ()

    are_drawn: bool
    passes_differ: bool

    def __init__(self, recipe: Recipe):
        self.recipe = recipe

    @abc.abstractmethod
    def schema(self) -> tuple[Feature, ...]:
        """The features that masks add to a row."""

    @abc.abstractmethod
    def apply(
        self,
        batch: dict[str, np.ndarray],
        candidates: np.ndarray,
        word_starts: np.ndarray | None,
        vocabulary: Vocabulary,
        rng: np.random.Generator,
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Chooses tokens to predict.

        Args:
            batch: packed rows.
            candidates: bool [batch, seq_length], true where a token may be chosen.
            word_starts: bool [batch, seq_length], true at the first piece of each word;
                None unless whole words are to be masked.
        Returns:
            the features of `schema` and the changed features of the batch; counts.
        """

    @abc.abstractmethod
    def layout(self, batch: dict[str, np.ndarray]) -> Layout:
        """The layout of any batch; it means little for records that break a rule."""

    @abc.abstractmethod
    def rules(
        self,
        batch: dict[str, np.ndarray],
        layout: Layout,
        vocabulary: Vocabulary,
        is_described: bool,
    ) -> Iterator[Rule]:
        """Yields the rules for the features of the masks.

        Args:
            is_described: whether the recipe comes from the records' description.
        """

    @abc.abstractmethod
    def figures(self, vocabulary: Vocabulary) -> list[Figures]:
        """Makes empty sums over what is predicted."""


class Instances(abc.ABC):
    """A kind of rows.

    Attributes:
        recipe: the flags of the records.
        masks: what the rows say about the tokens to predict.
        planned: the type of one planned row.
        suffix: of the files of planned rows.
        sentence_task: what next_sentence_labels are about, "next_sentence" or
            "sentence_order"; "" if rows have none.
        sides: names of the parts of a row, by segment id.
        none_planned: what to tell a user whose text yields no rows.
        long_sentences: what happens to sentences that are longer than a row.
        passes_differ: whether each pass over a text plans different rows.
        in_order: whether records are read in their order, in batches of `rows_per_batch`.
        has_backward_half: whether the second half of the rows of a batch is text in
            reverse order.
        crosses_documents: whether a row continues into the next document.
    """

    in_order = False
    has_backward_half = False
    crosses_documents = False
    planned: np.dtype
    suffix: str
    sentence_task: str = ""
    sides: tuple[str, ...]
    none_planned: str
    long_sentences: str
    passes_differ: bool

    def __init__(self, recipe: Recipe, masks: Masks):
        self.recipe = recipe
        self.masks = masks

    @abc.abstractmethod
    def max_num_tokens(self, vocabulary: Vocabulary) -> int:
        """How many tokens of the text fit into a row."""

    def check(self, vocabulary: Vocabulary) -> None:  # noqa: B027  most kinds take any
        """Raises:
        UserError: the flags do not fit each other or the vocabulary.
        """

    def arranged(self, records: np.ndarray, total: int, passes: int) -> np.ndarray:
        """The planned rows of records, for kinds whose records are `in_order`.

        Args:
            records: int64 [n], numbers of records.
            total: the number of records, all passes together.
        """
        raise NotImplementedError

    def refusal(self, num_documents: int) -> str:
        """Why this many documents yield no rows of this kind; "" if they do."""
        return ""

    @abc.abstractmethod
    def plan(
        self,
        corpus: Corpus,
        first: int,
        last: int,
        vocabulary: Vocabulary,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """Plans one pass over the documents `first` to `last`.

        Returns:
            `planned` [rows], and counts.
        """

    @abc.abstractmethod
    def runs(self, planned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The runs of tokens in planned rows: int64 starts, lengths [runs]."""

    @abc.abstractmethod
    def pack(
        self,
        corpus: Corpus,
        planned: np.ndarray,
        tokens: np.ndarray,
        vocabulary: Vocabulary,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Lays rows out.

        Args:
            tokens: int [sum of all runs], the concatenated runs of tokens.
        Returns:
            dict of the features of `schema`, without those of the masks; and bool
            [batch, max_seq_length]: the positions of `tokens`, in their order.
        """

    def labels(self) -> tuple[Feature, ...]:
        """The features of a row that are neither the encoder's inputs nor masks."""
        return ()

    def schema(self) -> tuple[Feature, ...]:
        """The features of a record, in the order in which they are encoded."""
        length = self.recipe.max_seq_length
        return (
            Feature("input_ids", "int64", length, "vocab_size"),
            Feature("input_mask", "int64", length, 2),
            Feature("segment_ids", "int64", length, "type_vocab_size"),
            *self.masks.schema(),
            *self.labels(),
        )

    def assemble(
        self,
        corpus: Corpus,
        planned: np.ndarray,
        vocabulary: Vocabulary,
        rng: np.random.Generator,
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Makes a batch of planned rows, and counts."""
        starts, lengths = self.runs(planned)
        tokens = corpus.ids.gather(starts, lengths)
        batch, is_text = self.pack(corpus, planned, tokens, vocabulary)
        word_starts = None
        if self.recipe.words_from_spaces:
            words = corpus.word_starts.gather(starts, lengths)
            word_starts = np.zeros(is_text.shape, bool)
            word_starts[is_text] = words
        elif self.recipe.do_whole_word_mask:
            word_starts = ~vocabulary.is_continuation[batch["input_ids"]]
        counts = {"instance_tokens": int(batch["input_mask"].sum(dtype=np.int64))}
        masked, noted = self.masks.apply(batch, is_text, word_starts, vocabulary, rng)
        return batch | masked, counts | noted

    # --- How records of this kind are checked and shown ------------------------------

    @abc.abstractmethod
    def rules(
        self, batch: dict[str, np.ndarray], layout: Layout, vocabulary: Vocabulary
    ) -> Iterator[Rule]:
        """Yields the rules of this kind, besides those of all records and of masks."""

    def sums(self, batch: dict[str, np.ndarray]) -> dict[str, int]:
        """Counts of a batch that the description also contains."""
        return {}

    @abc.abstractmethod
    def figures(self, vocabulary: Vocabulary) -> list[Figures]:
        """Makes empty sums over what only this kind has."""

    def label(self, record: dict[str, np.ndarray]) -> str:
        """The labels of a record in words; "" if it has none."""
        return ""

    def report(
        self, counts: dict[str, int], passes: int, vocabulary: Vocabulary
    ) -> list[str]:
        """Lines about a finished text: what happened to its tokens and sentences."""
        return []

    def advice(self, counts: dict[str, int]) -> list[str]:
        """Lines about records that training would make poor use of."""
        length = self.recipe.max_seq_length
        mean = counts["instance_tokens"] / max(1, counts["instances"])
        if mean >= _POORLY_FILLED * length:
            return []
        shorter = -(-int(1.5 * mean) // 32) * 32
        ways = [f"--max_seq_length={shorter}"] if shorter < length else []
        if not self.crosses_documents:
            ways.append("--instances=full_sentences, which fills rows across documents")
        if not ways:
            return []
        return [
            f"advice: records have {mean:.1f} of {length} tokens, and training computes "
            f"the padding, too; use {', or '.join(ways)}"
        ]
