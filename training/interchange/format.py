"""What a format of weights must offer; training/storage/weight_formats.py lists them."""

import abc
from collections.abc import Collection, Iterable

import numpy as np

from errors import UserError
from files import json_files
from modeling.architectures.config import EncoderConfig
from text.tokenizers.tokenizer import Tokenizer


def read_values(path: str) -> dict:
    """The content of a config; raises UserError if it cannot be read."""
    return json_files.read_object(path, "use the bert_config.json of a model")


class Format(abc.ABC):
    """Weights in one format, opened: each of their files is read at most once.

    Attributes:
        path: what names the weights.
        has_tokenizer_config: whether Hugging Face's files next to them decide how text
            becomes ids.
        needs_words: whether they read the characters of words, so that a model is made for
            those of a text, by `for_words`.
        is_adapted: whether only adapters are stored.
        head_class: Hugging Face's class of the model, if these files name another than the
            config does.
    """

    has_tokenizer_config = False
    needs_words = False
    is_adapted = False
    head_class: str | None = None

    def __init__(self, path: str):
        self.path = path

    # --- Which files are of this format ----------------------------------------------

    @classmethod
    @abc.abstractmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        """The path of a folder's weights in this format, if it has any.

        Args:
            names: what is in the folder.
        """

    @classmethod
    @abc.abstractmethod
    def is_weights(cls, path: str) -> bool:
        """Whether a path, by its name, is that of weights in this format."""

    # --- What they contain -----------------------------------------------------------

    @abc.abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Released names to the shapes that the release gives these variables."""

    @abc.abstractmethod
    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Reads tensors by their released names, with the release's shapes.

        Args:
            names: which to read; all by default.
        Raises:
            UserError: a file is damaged, or what it contains cannot be used.
        """

    def for_words(
        self, lines: Iterable[str]
    ) -> tuple[Tokenizer, EncoderConfig, dict[str, np.ndarray]]:
        """A model that knows the words of a text, which spaces separate.

        Returns:
            its tokenizer, its config, and the tensors of its encoder by our names.
        """
        raise NotImplementedError

    @property
    def whole(self) -> "Format":
        """The model that these weights make with those that they change; mostly itself."""
        return self

    @property
    def base(self):
        """The `Source` of the weights that these change, if its files describe both."""
        return None

    def check_head(self, variables: Collection[str]) -> None:
        """Refuses a model that has only a part of the head that is stored here.

        Args:
            variables: names of the model's.
        """
        del variables

    def read_config(self, path: str) -> dict:
        """The content of a config next to the weights; see `read_values`."""
        return read_values(path)

    def task(self) -> dict:
        """What the files say about the head, for `hugging_face.write`."""
        return {}

    def learned_task(self) -> dict:
        """The same, as far as it tells a `Task` what the model learned."""
        return {}

    @classmethod
    def missing_config(cls, folder: str) -> UserError | None:
        """What to say of weights of this format in a folder without a config, if it is
        not what is said of others.
        """
        del folder
        return None
