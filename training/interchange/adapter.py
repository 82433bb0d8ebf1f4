"""An architecture in Hugging Face's layout: names of weights, and its config.json."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from errors import UserError
from modeling.architectures import table
from modeling.architectures.config import EncoderConfig

# Kind of module -> (ending of the released name, ending of theirs, whether theirs is
# transposed: a kernel is [in, out] in the release and mostly [out, in] in their layout).
_ENDINGS = {
    "embedding": (("", ".weight", False),),
    "norm": (("/gamma", ".weight", False), ("/beta", ".bias", False)),
    "dense": (("/kernel", ".weight", True), ("/bias", ".bias", False)),
    "columns": (("/kernel", ".weight", False), ("/bias", ".bias", False)),
    "head": (("output_weights", ".weight", False), ("output_bias", ".bias", False)),
    "bias": (("/output_bias", ".bias", False),),
    "plain_bias": (("/bias", ".bias", False),),
    "kernel": (("/kernel", "", False),),
    "variable": (("", "", False),),
    "matrix": (("", ".weight", True),),
    "own_dense": (("/kernel", ".weight", True),),
    "scale": (("/scale", ".weight", False),),
}


def usual_heads(prefix: str) -> dict[str, str]:
    """What most architectures have for `Adapter.heads`; their classes begin alike."""
    return {
        "classification": f"{prefix}ForSequenceClassification",
        "tagging": f"{prefix}ForTokenClassification",
        "choice": f"{prefix}ForMultipleChoice",
    }


class Pair(NamedTuple):
    """One weight under both names."""

    released: str  # "bert/pooler/dense/kernel"
    hugging_face: str  # "bert.pooler.dense.weight"
    transposed: bool


class CheckpointNetwork(NamedTuple):
    """One of several networks that pre-training leaves in a checkpoint.

    Attributes:
        head: a released name that only its head has.
        does: what only this network does, to tell a user.
        take: (tensors, config) -> its own, as a model that has no other network.
        scopes: what the names begin with of variables that no other network has.
        flags: the flags of a run that determine its sizes; None for the network whose
            sizes are those of the config and whose encoder has the config's scope.
    """

    head: str
    does: str
    take: Callable
    scopes: tuple[str, ...]
    flags: str | None = None


class Adapter:
    """One architecture in both layouts, for reading and for writing files.

    Attributes:
        architecture: its key in the table of architectures.
        model_type: what a config.json calls it.
        modules: the released scope, Hugging Face's module, and the kind of module; # is
            a number of a layer.
        encoder: their encoder module, which an encoder saved alone omits, and its parts.
        masked_lm: the released name that only a masked-LM head has.
        tied: name of a duplicate that a file may contain -> the released name of the
            weight that it must equal if that head exists, and a description of it.
        shared: a weight that a model may have of its own -> the one that it otherwise
            has in its place, and a description of that; released names.
        shared_if: values of their config with which a file that lacks the former has the
            latter in its place, whatever the released config says.
        heads: purpose of a head without a name of its own -> their class that has it.
        classes: released names -> their class for a model that has all of them; the
            first match counts.
        causal: their class -> the one to use instead for a model that reads from left to
            right.
        pooled: their classes whose head reads the first token, whatever the direction.
        masked_lm_act: the activation in their masked-LM head if it is the same for every
            hidden_act; by the names of `layers.activation`.
        renamed: purpose of a head -> Hugging Face's module -> the one that their class for
            it has instead.
        in_class: their class -> Hugging Face's module -> the one that the class has
            instead, if other classes have a module of that name, too.
        without_layer: what to do about a model that has no weights for one of these.
        layer: the released scope of a layer, whose number is #; None if layers cannot be
            left out of a model.
        why_all_layers: why they cannot.
        numbers: patterns of a layer's number in a released name and in one of theirs.
        digits: how many a number has at least in a released name.
        stacked: released name of a variable whose first axis is that of the layers -> how
            many axes it has; theirs is in each layer, whose number is #.
        scope: what the released names of all weights but heads begin with, if these are
            several.
        constants: pattern of names of tensors that never change; {} is the encoder.
        networks: name -> network, if a checkpoint of pre-training has several.
    """

    architecture: str
    model_type: str
    modules: tuple[tuple[str, str, str], ...]
    encoder: tuple[str, tuple[str, ...]]
    masked_lm: str
    tied: Mapping[str, tuple[str, str]] = {}
    shared: Mapping[str, tuple[str, str]] = {}
    shared_if: Mapping[str, object] = {}
    heads: Mapping[str, str] = {}
    classes: Mapping[tuple[str, ...], str]
    causal: Mapping[str, str] = {}
    pooled: frozenset[str] = frozenset()
    masked_lm_act: str | None = None
    renamed: Mapping[str, Mapping[str, str]] = {}
    in_class: Mapping[str, Mapping[str, str]] = {}
    without_layer = "its weights are incomplete"
    layer: str | None = None
    why_all_layers = (
        "have no weights of their own to choose from; set a smaller num_hidden_layers in "
        "the config instead"
    )
    numbers = (
        r"((?<=/layer_)|(?<=group_))\d+(?=/)",
        r"((?<=\.layer\.)|(?<=\.h\.)|(?<=_layer_groups\.)|(?<=_layers\.))\d+(?=\.)",
    )
    digits = 1
    stacked: Mapping[str, int] = {}
    scope: tuple[str, ...] = ()
    # Always 0, 1, 2 ... and 0, 0, 0 ...
    constants = r"({}\.)?embeddings\.(position|token_type)_ids"
    networks: Mapping[str, CheckpointNetwork] = {}

    # --- The config ------------------------------------------------------------------

    @property
    def config(self) -> type[EncoderConfig]:
        """The class of the architecture's configs."""
        return table.ARCHITECTURES[self.architecture].config

    def from_hugging_face(self, values: Mapping) -> EncoderConfig:
        """Their config.json -> ours.

        Raises:
            ValueError: it describes another network, or a value is wrong.
        """
        raise NotImplementedError

    def to_hugging_face(self, config: EncoderConfig) -> dict:
        """The equivalent keys of their config.json.

        Raises:
            ValueError: they have no key for something.
        """
        raise NotImplementedError

    # --- Tensors whose form differs --------------------------------------------------

    def columns(self, name: str) -> tuple[str, ...]:
        """The names in `modules` of the columns of their tensor; often its own alone."""
        return (name,)

    def holder(self, name: str) -> str:
        """Their tensor that has these columns; see `columns`."""
        return name

    def prepare_tensors(
        self, tensors: Mapping[str, np.ndarray], config: EncoderConfig
    ) -> Mapping[str, np.ndarray]:
        """Released names and tensors -> those that are written."""
        del config
        return tensors

    def complete_tensors(self, tensors: dict[str, np.ndarray], values: Mapping) -> None:
        """Adds tensors that their class has and ours lacks, and that change nothing.

        Args:
            tensors: by their names; changed.
            values: the config.json to write.
        """

    def complete_head(self, weights: dict[str, np.ndarray], head: str | None) -> None:
        """Adds what their class for a head has and ours lacks, and that changes nothing.

        Args:
            weights: by their names; changed.
            head: its purpose.
        Raises:
            UserError: their class has a layer that has no weights here.
        """
        if head == "choice":
            # Their class has a bias; it is the same for every choice.
            bias = self.of_released("output_bias", head).hugging_face
            weights.setdefault(bias, np.zeros(1, np.float32))
        for own in self.renamed.get(head, {}).values():
            if f"{own}.weight" not in weights:
                raise UserError(
                    f"Hugging Face's {self.heads[head]} has a layer {own}: "
                    f"{self.without_layer}"
                )

    def own_heads(self, names: Iterable[str]) -> Mapping[str, tuple[str, bool]]:
        """For each tensor of a fine-tuned head whose name in the release is not ours, our
        name and whether ours is transposed.

        Args:
            names: those of a checkpoint.
        """
        del names
        return {}

    # --- Names -----------------------------------------------------------------------

    @functools.cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of all weights; those of all layers are one pair, with # in it."""
        return tuple(
            Pair(scope + released_ending, module + ending, transposed)
            for scope, module, kind in self.modules
            for released_ending, ending, transposed in _ENDINGS[kind]
        )

    @functools.cached_property
    def _by_their_name(self):
        return {pair.hugging_face: pair for pair in self.pairs}

    @functools.cached_property
    def _by_released_name(self):
        return {pair.released: pair for pair in self.pairs}

    @functools.cached_property
    def _usual_modules(self):
        return {
            own: usual
            for pairs in self.renamed.values()
            for usual, own in pairs.items()
        }

    def of_hugging_face(self, name: str) -> Pair | None:
        """The pair of a tensor in model.safetensors; None if the release has none.

        Args:
            name: as in the file; may be one of `renamed`, lack the encoder's module, or
                use the older names gamma and beta.
        """
        own, dot, ending = name.rpartition(".")
        own = self._usual_modules.get(own, own)
        name = self._with_encoder(f"{own}{dot}{ending}")
        name = re.sub(r"(?<=LayerNorm\.)gamma$", "weight", name)
        name = re.sub(r"(?<=LayerNorm\.)beta$", "bias", name)
        return self._find(name, self.numbers[1], self._by_their_name)

    def _with_encoder(self, name):
        """A tensor's name with the encoder's module, which one saved alone omits."""
        module, parts = self.encoder
        return f"{module}.{name}" if name.split(".")[0] in parts else name

    def _find(self, name, number, pairs) -> Pair | None:
        # A number after that of the layer may be part of a name.
        pair = pairs.get(re.sub(number, "#", name))
        pair = pair or pairs.get(re.sub(number, "#", name, count=1))
        for match in re.finditer(number, name) if pair else ():
            layer = int(match[0])
            pair = pair._replace(
                released=pair.released.replace("#", f"{layer:0{self.digits}d}", 1),
                hugging_face=pair.hugging_face.replace("#", str(layer), 1),
            )
        return pair

    def of_released(self, name: str, head: str | None = None) -> Pair | None:
        """The pair of a released name; None if their layout has no place for it.

        Args:
            head: purpose of the model's head.
        """
        pair = self._find(name, self.numbers[0], self._by_released_name)
        module, _, ending = pair.hugging_face.rpartition(".") if pair else ("", "", "")
        own = self.renamed.get(head, {}).get(module)
        return pair._replace(hugging_face=f"{own}.{ending}") if own else pair

    def layer_of_hugging_face(self, name: str) -> int:
        """The number of the layer in the name of a `stacked` tensor's part."""
        return int(re.search(self.numbers[1], self._with_encoder(name))[0])

    def not_read(self, names: Iterable[str]) -> set[str]:
        """Tensors of a file that their class ignores, because it renamed the module.

        Files of earlier versions of transformers contain such tensors.
        """
        modules = {name: name.rpartition(".")[0] for name in names}
        present = set(modules.values())
        usual = {usual for own, usual in self._usual_modules.items() if own in present}
        return {name for name, module in modules.items() if module in usual}

    def is_implied(self, name: str) -> bool:
        """Whether a tensor can be dropped because others determine its values."""
        constant = self.constants.format(re.escape(self.encoder[0]))
        return name in self.tied or re.fullmatch(constant, name) is not None

    def class_of(self, released: Iterable[str]) -> str:
        """Their class for a model whose heads, if any, have names of their own."""
        present = set(released)
        return next(c for names, c in self.classes.items() if present.issuperset(names))


def parts_of_head(
    names: Iterable[str], pattern: re.Pattern
) -> dict[str, tuple[str, ...]]:
    """The tensors of a fine-tuned head, with the groups of a pattern of their names.

    The first group is the task's; a checkpoint with the heads of several keeps its names.
    """
    matches = {name: pattern.fullmatch(name) for name in names}
    parts = {name: match.groups() for name, match in matches.items() if match}
    return parts if len({task for task, *_ in parts.values()}) == 1 else {}
