"""The contract of an encoder's config: its fields, their checks, and its file.

A config class is a frozen dataclass whose fields are the keys of its file. A field is an
int, float, str or bool, and may also allow None. A key with a default may be absent.
"""

import dataclasses
import difflib
import json
import typing
from collections.abc import Mapping
from types import NoneType

DEFAULT_ARCHITECTURE = "bert"
POOLINGS = ("first", "last", "mean")
_KEY = "architecture"
_MOST_LAYERS = 1000  # of the deepest Transformers; more take minutes to build


class MaskedLMNames(typing.NamedTuple):
    """The names of a masked-LM head's variables, and so what it consists of.

    Attributes:
        scope: what they begin with.
        transform: the scope, below that, of what the head does before it multiplies by the
            table of word embeddings; may be empty. None if it only multiplies.
        bias: the name, below `scope`, of what is added to the logits; None without one.
    """

    scope: str = "cls/predictions"
    transform: str | None = "transform"
    bias: str | None = "output_bias"


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """What all architectures' configs share.

    Heads and scripts also read these, which every config class has as fields or, where
    there is nothing to choose, as properties: vocab_size, hidden_size, num_hidden_layers,
    hidden_act, hidden_dropout_prob, max_position_embeddings (math.inf for rows of any
    length), initializer_range; and, if it has segments, type_vocab_size, by which records
    are checked.

    Attributes:
        architecture: its key in the table of architectures; written to the file under
            this name unless it is the default.
        choices: the allowed values of each key of type str.
        tolerated_keys: keys of released files that do not affect the network; they are
            ignored.
        own_keys: keys that released files do not have; written only if they differ from
            their default, so that other readers of the file do not meet them.
        keys_without_shape: keys that change what the same weights compute, but no shape.
        file_keys: field -> its key in the file, where that is not the field's name.
        telling_keys: keys by which its released files, which do not name their
            architecture, are recognized.
        has_segments: whether the network tells the segments of a row apart.
        capabilities: what else it can do, by which objectives and records ask for it:
            "documents", rows of several, which do not see each other, by position_ids;
            "query_stream", a stream that sees where a token is but not which;
            "directions", outputs whose first half has seen nothing that follows the
            position, and whose second half nothing that precedes it; "decoder", one that
            writes text.
        masked_lm: what its masked-LM head consists of.
        low_rank_targets: the dense layers that LoRA changes by default, by the end of their
            names.
        glorot_heads: whether the first weights of task heads are drawn from Glorot's
            uniform distribution instead of the encoder's.
        truncated_weights: whether the first weights of encoder and task heads, which are
            drawn from a normal distribution, have at most two deviations.
        pretraining_model: "module:Class" of a network with all variables that a pre-trained
            checkpoint of this architecture may have.
    Raises:
        ValueError: a value has the wrong type or is out of range.
    """

    architecture: typing.ClassVar[str]
    choices: typing.ClassVar[Mapping[str, tuple[str, ...]]] = {}
    tolerated_keys: typing.ClassVar[frozenset[str]] = frozenset()
    own_keys: typing.ClassVar[frozenset[str]] = frozenset()
    keys_without_shape: typing.ClassVar[tuple[str, ...]] = ()
    file_keys: typing.ClassVar[Mapping[str, str]] = {}
    telling_keys: typing.ClassVar[frozenset[str]] = frozenset()
    has_segments: typing.ClassVar[bool] = True
    capabilities: typing.ClassVar[frozenset[str]] = frozenset()
    masked_lm: typing.ClassVar[MaskedLMNames] = MaskedLMNames()
    low_rank_targets: typing.ClassVar[tuple[str, ...]] = ("query", "value")
    glorot_heads: typing.ClassVar[bool] = False
    truncated_weights: typing.ClassVar[bool] = True
    pretraining_model: typing.ClassVar[str] = (
        "modeling.objectives.sentence_pairs:PretrainingModel"
    )

    @property
    def scope(self) -> str:
        """The first part of the names of the encoder's variables."""
        return self.architecture

    @property
    def embedding_size(self) -> int:
        """The width of the table of word embeddings."""
        return self.hidden_size

    def kept_numbers(self, seq_length: int) -> int:
        """What the gradients of a layer need of its pass over one row, at the least."""
        return seq_length * self.hidden_size

    def multiplications(self, seq_length: int) -> int:
        """Of the products of matrices in the encoder's pass over one row."""
        raise NotImplementedError

    @property
    def attention_direction(self) -> str:
        """What a position sees of the others: "both" sides, "left_to_right" those before
        it, "right_to_left" those after it, or "none".
        """
        return "both"

    @property
    def row_pooling(self) -> str:
        """What a head for whole rows reads: one of POOLINGS, or "ends", what each direction
        of LSTMs knows where it ends.
        """
        return "first"

    @property
    def embedding_range(self) -> float:
        """The deviation of the first weights of the table of word embeddings."""
        return self.initializer_range

    @property
    def masked_lm_activation(self) -> str:
        """The activation in a masked-LM head, by the names of `layers.activation`."""
        return self.hidden_act

    @property
    def token_axes(self) -> dict[str, int]:
        """Variables of heads that have something for each token -> the axis of tokens."""
        names = filter(None, ("output_weights", self.masked_lm.bias))
        return {f"{self.masked_lm.scope}/{name}": 0 for name in names}

    @property
    def head_dropout_prob(self) -> float:
        """The dropout of what a fine-tuning head reads."""
        return self.hidden_dropout_prob

    @property
    def layer_norm_eps(self) -> float:
        """What layer normalization adds to the variance."""
        return 1e-12

    @property
    def pad_token_id(self) -> int | None:
        """The id of padding in the vocabulary; None if it may be any."""
        return None

    @property
    def eos_token_id(self) -> int | None:
        """The id of what ends a text that is written; None if it may be any."""
        return None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            self._check(field.name, field.type, getattr(self, field.name))

    def _check(self, field, kind, value):
        name = self.file_keys.get(field, field)
        kinds = typing.get_args(kind) or (kind,)
        if value is None and NoneType in kinds:
            return
        (kind,) = (k for k in kinds if k is not NoneType)
        # bool is an int to Python; `true` for a number is still a mistake here.
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
            raise ValueError(
                f"{name} is {value!r:.40}; it must be of type {kind.__name__}"
            )
        if kind is bool:
            return
        if kind is str:
            choices = self.choices[field]
            allowed, fits = f"one of {', '.join(choices)}", value in choices
        elif field.endswith("_prob"):
            allowed, fits = "at least 0 and below 1", 0 <= value < 1
        elif field.endswith("_id"):
            allowed, fits = "at least 0 and below 2^31", 0 <= value < 2**31
        elif field.endswith("_layers"):
            allowed, fits = f"from 1 to {_MOST_LAYERS}", 0 < value <= _MOST_LAYERS
        elif kind is int:
            allowed, fits = "above 0 and below 2^31", 0 < value < 2**31
        else:
            allowed, fits = "above 0 and finite", 0 < value < float("inf")
        if not fits:
            raise ValueError(f"{name} is {value!r:.40}; it must be {allowed}")

    @classmethod
    def from_dict(cls, values: Mapping) -> typing.Self:
        """Builds a config from the keys of a file of this architecture.

        Raises:
            ValueError: a key without a default is absent, a key is unknown, or a value is
                wrong.
        """
        fields = {
            cls.file_keys.get(field.name, field.name): field
            for field in dataclasses.fields(cls)
        }
        for key in values:
            if key not in {*fields, *cls.tolerated_keys, _KEY}:
                close = difflib.get_close_matches(key, fields, n=1)
                hint = f"did you mean {close[0]!r}?" if close else "remove it"
                raise ValueError(f"unknown key {key!r:.40}; {hint}")
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise ValueError(f"missing key {name!r}, which has no default; add it")
        return cls(**{fields[key].name: values[key] for key in values if key in fields})

    @classmethod
    def from_json_file(cls, path: str) -> typing.Self:
        """Reads a config file of this architecture; raises as `from_dict` does."""
        with open(path, encoding="utf-8") as file:
            return cls.from_dict(json.load(file))

    def to_json_string(self) -> str:
        """Returns the text of a config file, keys sorted."""
        values = {
            self.file_keys.get(field.name, field.name): getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in self.own_keys
            or getattr(self, field.name) != field.default
        }
        if self.architecture != DEFAULT_ARCHITECTURE:
            values[_KEY] = self.architecture
        return json.dumps(values, indent=2, sort_keys=True) + "\n"
