"""The contract of an encoder: what heads, checkpoints and exports need from it."""

import abc
import json
from collections.abc import Iterator

import keras
from keras import ops

from modeling import layers
from modeling.architectures.masked_lm_head import MaskedLMHead
from modeling.architectures.table import config_from_dict


class Encoder(keras.layers.Layer, abc.ABC):
    """Turns token ids into vectors.

    Every variable exists once the object does, and its `path` is the name that the
    checkpoints of its release give it. All paths begin with the layer's name.

    It is at home in Keras: `fit`, `.keras` files, `clone_model` and whatever else takes a
    layer take it.

    Attributes:
        config: its EncoderConfig.
        optional_parts: prefixes, after the layer's name and a slash, of the variables that
            a checkpoint to start from may lack.
    """

    optional_parts: tuple[str, ...] = ()

    def __init__(self, **settings):
        super().__init__(**settings)
        self._dropout_seeds = keras.random.SeedGenerator()  # of dropouts in `fit`

    def __init_subclass__(cls, **settings):
        super().__init_subclass__(**settings)
        keras.saving.register_keras_serializable(package="bert")(cls)

    @property
    def scope(self) -> str | tuple[str, ...]:
        """What the names of its variables begin with, and no others: one or several."""
        return f"{self.name}/"

    @property
    def required_variables(self) -> tuple[str, ...]:
        """The names of the variables that a checkpoint to start from must contain."""
        optional = tuple(f"{self.name}/{part}" for part in self.optional_parts)
        paths = (variable.path for variable in self.weights)
        return tuple(path for path in paths if not path.startswith(optional))

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """The width of its outputs."""

    @property
    @abc.abstractmethod
    def word_embeddings(self):
        """The variable [vocab_size, width] that a masked-LM head shares."""

    @property
    @abc.abstractmethod
    def stages(self) -> list[list[keras.Variable]]:
        """All variables, from the bottom up: embeddings, each layer, pooler.

        An encoder without a pooler ends with an empty list. Weights that several layers
        share are in the list of each.
        """

    @property
    def position_embeddings(self):
        """The variable [rows, width] with a row for each position; None without one."""
        return None

    def pool(self, outputs: dict, input_mask=None):
        """What a head for whole rows reads.

        Args:
            outputs: what `call` returned.
            input_mask: that of the inputs.
        Returns:
            tensor [b, h].
        """
        del input_mask
        return outputs["pooled_output"]

    def token_vectors(self, outputs: dict):
        """What a head for tokens reads.

        Args:
            outputs: what `call` returned.
        Returns:
            tensor [b, s, h].
        """
        return outputs["sequence_output"]

    def make_head(self, name: str, initializers: Iterator) -> keras.layers.Layer:
        """The head of this name that its release pre-trains it with, built.

        Args:
            name: "masked_lm", for a layer that is used like `MaskedLMHead`.
            initializers: what draws its first weights; see `layers.weight_initializers`.
        """
        assert name == "masked_lm", name
        head = MaskedLMHead(self.config, initializers, self.dtype_policy.name)
        with layers.name_scopes(self.config.masked_lm.scope.rpartition("/")[0]):
            head.build()
        return head

    def call(
        self, inputs, dropouts=None, return_all=False, training=None, **more
    ) -> dict:
        """Encodes a batch.

        Args:
            inputs: dict of int tensors [b, s]: input_ids, and optionally input_mask
                (1 = real token, the default) and segment_ids (0 by default). With the
                capability "documents" also position_ids, which count from 0 in each
                document of a row; tokens see those of their own. Other keys are ignored.
            dropouts: the `layers.Dropouts` of this pass; by default, with `training`, new
                ones that follow from `keras.utils.set_random_seed`, else none.
            return_all: also return the outputs below the last layer.
            training: as `fit` passes it.
            more: see `encode` of some architectures.
        Returns:
            see `encode`.
        """
        if dropouts is None:
            dropouts = self.dropouts(training)
        return self.encode(inputs, dropouts, return_all, **more)

    def dropouts(self, training: bool | None):
        """Those of a pass of Keras's: new ones in training, else none."""
        if not training:
            return layers.no_dropout
        return layers.Dropouts(ops.cast(self._dropout_seeds.next(), "int32"))

    def compute_output_spec(self, inputs, *args, **more):
        """Of rows of any number and length, too, which not every backend can trace."""
        rows, length = inputs["input_ids"].shape

        def make_input(tensor):
            some = min(8, self.config.max_position_embeddings)
            shape = (rows or 2, length or some, *tensor.shape[2:])
            return keras.KerasTensor(shape, tensor.dtype, name=tensor.name)

        def as_given(tensor):
            shape = (rows, length) if len(tensor.shape) == 3 else (rows,)
            return keras.KerasTensor((*shape, tensor.shape[-1]), tensor.dtype)

        if None not in (rows, length):
            return super().compute_output_spec(inputs, *args, **more)
        inputs = {name: make_input(tensor) for name, tensor in inputs.items()}
        outputs = super().compute_output_spec(inputs, *args, **more)
        return keras.tree.map_structure(as_given, outputs)

    @abc.abstractmethod
    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False) -> dict:
        """Encodes a batch; arguments as for `call`.

        Returns:
            dict of sequence_output [b, s, h] and, if the architecture has a pooler,
            pooled_output [b, h]; with return_all also embedding_output [b, s, h] and
            layer_outputs, a list of [b, s, h].
        """

    def attention_scores(self, number: int, layer_input):
        """What a layer scores before its mask and softmax.

        Args:
            number: of the layer, from 0.
            layer_input: [b, s, h], what it reads.
        Returns:
            float tensor [b, heads, s (from), s (to)], scaled.
        """
        raise NotImplementedError

    # --- Saving and loading in Keras's formats ---------------------------------------

    def get_config(self) -> dict:
        return {
            "config": json.loads(self.config.to_json_string()),
            "dtype": self.dtype_policy.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config):
        made = cls(config_from_dict(config["config"]), dtype=config["dtype"])
        made.trainable = config["trainable"]
        return made

    def get_build_config(self):
        """Nothing, because the constructor builds all of it."""
        return None

    def build_from_config(self, config):
        pass
