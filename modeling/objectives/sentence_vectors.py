"""Sentence vectors: one for each text, near those of texts that mean the same."""

from collections.abc import Callable, Sequence

from keras import ops

from errors import UserError, setting
from modeling import layers, pooling
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import Comparison, Objective, row_weights
from modeling.objectives.tasks import sequences

OUTPUT = "embedding"
_UNSEEING = ("left_to_right", "none")  # how an encoder reads whose [CLS] sees no text


def _numbers_of_rows(batch, outputs):
    """Of all texts of a row, [b, n * d]."""
    del batch
    vectors = outputs[OUTPUT]
    return [ops.reshape(vectors, (ops.shape(vectors)[0], -1))]


_COMPARISON = Comparison.of(OUTPUT, logits=_numbers_of_rows, kind="vectors")


class SentenceModel(Network):
    """An encoder whose tokens' vectors become one for each text.

    Maps a batch to float32 embedding [b, d], or [b, n, d] for rows of n texts, [b, n, s].

    Args:
        config: the architecture.
        pooled_by: one of `features.TOKEN_POOLINGS`.
        projection_size: width of a linear layer on the vectors; None for no such layer.
        projection_activation: that of this layer, by the names of `layers.activation`, or
            None.
        normalized: whether vectors get the length 1.
        size: how many numbers of a vector are kept outside of training; None for all.
        seed, dtype: as for `Objective.network`.
    """

    reads_pooler = False

    def __init__(
        self,
        config: EncoderConfig,
        pooled_by: str,
        projection_size: int | None,
        projection_activation: str | None,
        normalized: bool,
        size: int | None,
        *,
        seed: int,
        dtype: str,
    ):
        super().__init__(name="task", dtype=dtype, autocast=False)
        self.config, self.pooled_by = config, pooled_by
        self.normalized, self.size = normalized, size
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.projection, self.activation = None, None
        if projection_activation:
            self.activation = layers.activation(projection_activation)
        if projection_size:
            initializers = layers.weight_initializers(
                config.initializer_range, f"vectors {seed}", config.truncated_weights
            )
            self.projection = layers.Dense(
                projection_size, next(initializers), "float32", name="projection"
            )
            with layers.name_scopes("vectors"):
                self.projection.build((None, self.encoder.hidden_size))
        self.built = True

    @property
    def description_suffix(self) -> str:
        return f"; its vectors are pooled by {self.pooled_by}"

    def outputs_of(self, batch, dropouts):
        names = ("input_ids", "input_mask", "segment_ids")
        texts = {name: sequences(batch[name]) for name in names}
        encoded = self.encoder(texts, dropouts=dropouts)
        hidden = self.encoder.token_vectors(encoded)
        vectors = pooling.pool_tokens(self.pooled_by, hidden, texts["input_mask"])
        if self.projection:
            vectors = self.projection(vectors)
        if self.activation:
            vectors = self.activation(vectors)
        if dropouts is layers.no_dropout:
            vectors = vectors[:, : self.size]
        if self.normalized:
            vectors = pooling.unit_vectors(vectors)
        shape = ops.shape(batch["input_ids"])
        return {OUTPUT: ops.reshape(vectors, (*shape[:-1], vectors.shape[-1]))}


class SentenceVectors(Objective):
    """Learns vectors of texts that belong together.

    Args:
        loss: a function of `vector_losses`, with its settings.
        of_whole_batch: whether it compares each row with the others.
        metric: the name of its metric.
        pooled_by, projection_size, projection_activation, normalized, size: see
            `SentenceModel`.
        widths: learn also the first numbers of each vector, this many, as vectors.
    Source: Reimers and Gurevych, arXiv:1908.10084; of widths, arXiv:2205.13147.
    """

    loss_weights = {"loss": 1.0}
    comparison = _COMPARISON

    def __init__(
        self,
        loss: Callable,
        *,
        of_whole_batch: bool,
        metric: str,
        pooled_by: str = "mean",
        projection_size: int | None = None,
        projection_activation: str | None = None,
        normalized: bool = True,
        size: int | None = None,
        widths: Sequence[int] = (),
    ):
        self._loss, self.of_whole_batch = loss, of_whole_batch
        self.metric_names = (metric,)
        projection = projection_size, projection_activation
        self._network = (pooled_by, *projection, normalized, size)
        self._normalized = normalized
        self._widths = tuple(widths)

    @property
    def for_evaluation(self) -> "Embedding":
        return Embedding(self)

    def check(self, config) -> None:
        pooled_by, projection_size, _, _, size = self._network
        if pooled_by == "cls" and config.attention_direction in _UNSEEING:
            raise UserError(
                f"{setting('pooling', 'cls')}: [CLS] sees no other token, so it is the "
                f"same for every text; use {setting('pooling', 'mean')}"
            )
        width = projection_size or config.hidden_size
        for name, sizes in (
            ("matryoshka_sizes", self._widths),
            ("vector_size", [size]),
        ):
            if wrong := [n for n in sizes if n and n > width]:
                raise UserError(
                    f"{setting(name, wrong[0])}: the vectors have only {width} numbers"
                )

    def network(self, config, *, seed=0, dtype="float32") -> SentenceModel:
        return SentenceModel(config, *self._network, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {"loss": ops.sum(row_weights(batch))}

    def _results(self, batch, vectors):
        """Loss and metric of vectors, each a pair."""
        return self._loss(vectors, batch, row_weights(batch))

    def losses(self, batch, outputs) -> dict:
        """The loss of whole vectors, and those of their first numbers, added up."""
        vectors = outputs[OUTPUT]
        (total, weight), _ = self._results(batch, vectors)
        for width in self._widths:
            if width < vectors.shape[-1]:
                part = vectors[..., :width]
                if self._normalized:
                    part = pooling.unit_vectors(part)
                total += self._results(batch, part)[0][0]
        return {"loss": (total, weight)}

    def metrics(self, batch, outputs) -> dict:
        (name,) = self.metric_names
        return {name: self._results(batch, outputs[OUTPUT])[1]}


class Embedding(Objective):
    """Gives the vectors of single texts; learns and measures nothing.

    Args:
        learned: the objective of the network.
    """

    loss_weights, metric_names = {}, ()
    comparison = _COMPARISON

    def __init__(self, learned: SentenceVectors):
        self._learned = learned

    def network(self, config, *, seed=0, dtype="float32") -> SentenceModel:
        return self._learned.network(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {}

    def losses(self, batch, outputs) -> dict:
        return {}

    def metrics(self, batch, outputs) -> dict:
        return {}
