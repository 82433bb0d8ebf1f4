"""Declares what a kind of rows must define: which spans form a row, and how it is laid out.

A kind has a name in text/instances/table.py. Generation and training rely only on what is
declared here; what is checked and shown of a kind is in text/inspection.
"""

import abc
import array
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

import extensions
import options
from text.corpus.store import Corpus, FlatFile
from text.records.schema import Feature
from text.tokenizers.vocabulary import Vocabulary

_WINDOW = 1 << 16  # sentences of one document held at a time


@dataclasses.dataclass(frozen=True)
class RecordOptions(options.Group):
    """Records. What rows of any kind contain."""

    do_whole_word_mask: bool = options.field(
        False, help="Mask all pieces of a word, or none."
    )
    max_seq_length: int = options.field(128, help="Tokens per record, at least 8.")
    max_predictions_per_seq: int = options.field(
        20, help="Maximum number of tokens to predict per record."
    )
    masked_lm_prob: float = options.field(
        0.15, help="Share of tokens to predict.", at_least=0, at_most=1
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
        help="Mask runs of up to this many words. Without --do_whole_word_mask, of tokens; "
        "n of them with probability proportional to 1/n." + extensions.help_of("ngram"),
        at_least=1,
    )
    mask_share: float = options.field(
        0.8,
        help="Share of the predicted tokens that become [MASK].",
        at_least=0,
        at_most=1,
    )
    random_share: float = options.field(
        0.1,
        help="Share of the predicted tokens that are replaced by a random one.",
        at_least=0,
        at_most=1,
    )

    @property
    def words_from_spaces(self) -> bool:
        return self.do_whole_word_mask and self.word_boundaries == "spaces"


class Masks(abc.ABC):
    """What records say about the tokens to predict.

    Attributes:
        are_drawn: whether the records say which tokens to predict.
        passes_differ: whether each pass over a text predicts different tokens.
    """

    are_drawn: bool
    passes_differ: bool

    def __init__(self, options: RecordOptions):
        self.options = options

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


class Instances(abc.ABC):
    """A kind of rows.

    Attributes:
        options: the flags of the records, which have those of this kind.
        masks: what the rows say about the tokens to predict.
        planned: the type of one planned row. For each of its `spans` it has `{span}_start`
            and `{span}_length`, in tokens of the corpus.
        spans: names of the runs of the corpus in a row.
        sentence_task: what next_sentence_labels are about, "next_sentence" or
            "sentence_order"; "" if rows have none.
        released: the flags of the records of another release than BERT's, which have no
            description; None if there are none of this kind.
        none_planned: what to tell a user whose text yields no rows.
        passes_differ: whether each pass over a text plans different rows.
        rows_per_batch: if not 0, records are read in their order, in batches of this many,
            and a row continues that of the batch before.
        reuse: the first tokens of a row that do so.
        crosses_documents: whether a row continues into the next document.
        capability: what an encoder must be able to do to read the rows, as
            `EncoderConfig.capabilities` has it; "" if any can.
    """

    planned: np.dtype
    spans: tuple[str, ...]
    sentence_task: str = ""
    released: Mapping[str, object] | None = None
    none_planned: str
    passes_differ: bool
    rows_per_batch = 0
    reuse = 0
    crosses_documents = False
    capability = ""

    def __init__(self, options: RecordOptions, masks: Masks):
        self.options = options
        self.masks = masks

    @abc.abstractmethod
    def max_num_tokens(self, vocabulary: Vocabulary) -> int:
        """How many tokens of the text fit into a row."""

    def check(self, vocabulary: Vocabulary) -> None:  # noqa: B027  most kinds take any
        """Raises UserError if the flags do not fit each other or the vocabulary."""

    def order_rows(self, records: np.ndarray, total: int, passes: int) -> np.ndarray:
        """The planned rows of records, for kinds with `rows_per_batch`.

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

    def runs(self, planned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The runs of tokens in planned rows: int64 starts, lengths [runs]."""
        starts, lengths = (
            np.stack([planned[f"{span}_{name}"] for span in self.spans], axis=1).ravel()
            for name in ("start", "length")
        )
        return starts, lengths.astype(np.int64)

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
        """The features that only rows of this kind have."""
        return ()

    def schema(self) -> tuple[Feature, ...]:
        """The features of a record, in the order in which they are encoded."""
        length = self.options.max_seq_length
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
        if self.options.words_from_spaces:
            words = corpus.word_starts.gather(starts, lengths)
            word_starts = np.zeros(is_text.shape, bool)
            word_starts[is_text] = words
        elif self.options.do_whole_word_mask:
            word_starts = ~vocabulary.is_continuation[batch["input_ids"]]
        counts = {"instance_tokens": int(batch["input_mask"].sum(dtype=np.int64))}
        masked, masked_counts = self.masks.apply(
            batch, is_text, word_starts, vocabulary, rng
        )
        return batch | masked, counts | masked_counts


def as_planned(numbers: array.array, planned: np.dtype) -> np.ndarray:
    """Planned rows from the numbers of all their fields, row by row."""
    columns = np.frombuffer(numbers, np.int64).reshape(-1, len(planned.names)).T
    rows = np.empty(columns.shape[1], planned)
    for name, values in zip(planned.names, columns, strict=True):
        rows[name] = values
    return rows


def windows(sentences: FlatFile, first: int, last: int) -> Iterator[list[int]]:
    """Yields the token offsets of a document's sentences, in parts that share an end."""
    for start in range(first, last, _WINDOW):
        yield sentences[start : min(start + _WINDOW, last) + 1].tolist()
