"""Reads the files of a released ELMo: options.json and HDF5 weights.

Such a model has no table of tokens: it reads the characters of each word. What is made of
a word does not depend on its neighbours, so for the words of a text it is computed once,
and becomes the table of an ordinary ElmoEncoder.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import h5py
import numpy as np

from errors import UserError
from family.elmo import character_ids as characters
from family.elmo import tokenizer as whole_words
from family.elmo.characters import CharacterCnn, Highway
from family.elmo.encoder import ElmoConfig
from files import anywhere, json_files, sources
from training.interchange.format import Format

_OPTIONS, _WEIGHTS = "options.json", ".hdf5"
_MOST_PACKED = 100  # times that a tensor may be larger than what is stored of it
_SUFFIX = "_weights.hdf5"
_DIRECTIONS = ("forward", "backward")
_KINDS = {"kernel": "W_0", "bias": "B", "projection": "W_P_0"}
_SCOPES = ("CNN", "RNN_")  # of the network's weights, other than char_embed
_BATCH = 1024  # words whose characters are read at once


class _BilmFiles(NamedTuple):
    options: str
    weights: str


class Bilm(Format):
    """The files of a released ELMo."""

    @classmethod
    def find(cls, folder: str, names: Collection[str]) -> str | None:
        weights = sorted(name for name in names if name.endswith(_WEIGHTS))
        if not weights or not any(name.endswith(_OPTIONS) for name in names):
            return None
        if len(weights) > 1:
            raise UserError(
                f"{folder}: contains {', '.join(weights)}; pass the path of one"
            )
        return os.path.join(folder, weights[0])

    @classmethod
    def is_weights(cls, path: str) -> bool:
        """Whether this is the path of either file."""
        return path.endswith((_OPTIONS, _WEIGHTS))

    needs_words = True

    def for_words(
        self, lines: Iterable[str]
    ) -> tuple[whole_words.WholeWords, ElmoConfig, dict[str, np.ndarray]]:
        words = (word for line in lines for word in line.split())
        tokenizer = whole_words.WholeWords.of(words)
        return tokenizer, *read(self.path, tokenizer.vocabulary.tokens)

    @classmethod
    def missing_config(cls, folder: str) -> UserError:
        return _without_words(folder)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        raise _without_words(self.path)

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        raise _without_words(self.path)


def _without_words(path):
    return UserError(
        f"{path}: is a released ELMo, which reads characters and has no vocabulary; make "
        "a model for the words of your text with convert_checkpoint.py --words_file"
    )


def read(path: str, tokens: Sequence[str]) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """An ELMo that knows these words.

    Args:
        path: of the options or the weights.
        tokens: of a `WholeWords` tokenizer, by id.
    Returns:
        the config, and the tensors of its encoder by our names.
    """
    files = _files(path)
    options = _Options(files.options)
    weights = _Weights(files.weights)
    config = options.config(len(tokens))
    tensors = {"elmo/table": _table(options, weights, tokens)}
    width, size = config.embedding_size, config.lstm_size
    expected = {
        "kernel": (2 * width, 4 * size),
        "bias": (4 * size,),
        "projection": (size, width),
    }
    for layer in range(config.num_hidden_layers):
        for number, direction in enumerate(_DIRECTIONS):
            scope = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            for kind, name in _KINDS.items():
                value = weights.get(f"{scope}/{name}", *expected[kind])
                tensors[f"elmo/layer_{layer}/{direction}_{kind}"] = value
    weights.check_all_read()
    return config, tensors


def _table(options, weights, tokens):
    """float32 [tokens, p]: what is made of their characters; zeros for padding."""
    network = _cnn(options, weights)
    special = {
        whole_words.BEGIN: characters.BEGIN_SENTENCE,
        whole_words.END: characters.END_SENTENCE,
    }
    words = [special.get(token, token) for token in tokens]
    rows = []
    for start in range(0, len(words), _BATCH):
        some = words[start : start + _BATCH]
        ids = characters.character_ids(some, options.most_characters)
        rows.append(np.asarray(network(ids)))
    table = np.concatenate(rows)
    table[tokens.index(whole_words.PAD)] = 0.0
    return table


def _cnn(options, weights) -> CharacterCnn:
    width = options.character_width
    table = weights.get("char_embed", characters.NUM_CHARACTERS - 1, width)
    channels = sum(number for _, number in options.filters)
    convolutions = []
    for index, (length, number) in enumerate(options.filters):
        kernel = weights.get(f"CNN/W_cnn_{index}", 1, length, width, number)[0]
        convolutions.append((kernel, weights.get(f"CNN/b_cnn_{index}", number)))
    highways = [
        Highway(
            *(
                weights.get(f"CNN_high_{index}/{kind}_{part}", *shape)
                for part in ("carry", "transform")
                for kind, shape in (("W", (channels, channels)), ("b", (channels,)))
            )
        )
        for index in range(options.num_highways)
    ]
    projection = None
    if channels != options.projection:
        projection = (
            weights.get("CNN_proj/W_proj", channels, options.projection),
            weights.get("CNN_proj/b_proj", options.projection),
        )
    # What is not a word has a row of zeros, which the file leaves out.
    table = np.concatenate([np.zeros_like(table[:1]), table])
    return CharacterCnn(table, convolutions, options.activation, highways, projection)


class _Options:
    """What options.json says."""

    def __init__(self, path: str):
        advice = "use the options.json that belongs to the weights"
        options = json_files.read_object(path, advice)
        try:
            lstm, cnn = options["lstm"], options["char_cnn"]
            self._lstm = lstm
            self.projection = int(lstm["projection_dim"])
            self.character_width = int(cnn["embedding"]["dim"])
            self.filters = [
                (int(width), int(number)) for width, number in cnn["filters"]
            ]
            self.num_highways = int(cnn.get("n_highway") or 0)
            self.most_characters = int(cnn["max_characters_per_token"])
            self.activation = cnn["activation"]
            if self.activation not in ("relu", "tanh"):
                raise ValueError(f"activation is {self.activation!r:.40}")
            widths = [width for width, _ in self.filters]
            if not widths:
                raise ValueError("filters is empty")
            if self.most_characters < max(3, *widths):
                raise ValueError("max_characters_per_token is too small")
            self.config(1)
        except (
            LookupError,
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
        ) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else error
            raise UserError(
                f"{path}: not the options of a released ELMo with characters ({what}); "
                f"{advice}"
            ) from error

    def config(self, vocab_size: int) -> ElmoConfig:
        lstm = self._lstm
        return ElmoConfig(
            vocab_size=vocab_size,
            hidden_size=2 * self.projection,
            num_hidden_layers=lstm["n_layers"],
            lstm_size=lstm["dim"],
            cell_clip=lstm.get("cell_clip"),
            projection_clip=lstm.get("proj_clip"),
            use_skip_connections=lstm.get("use_skip_connections") or False,
        )


class _Weights:
    """The tensors of the HDF5 file, by their names there."""

    def __init__(self, path: str):
        self._path = path
        self._tensors = _tensors(path)
        self._unread = {name for name in self._tensors if name.startswith(_SCOPES)}

    def check_all_read(self) -> None:
        """Refuses a network with weights that nothing asked for."""
        if self._unread:
            raise UserError(
                f"{self._path}: {min(self._unread)} is in no network that {_OPTIONS} "
                "describes; use the pair of files that was released together"
            )

    def get(self, name: str, *shape: int) -> np.ndarray:
        """float32; raises UserError unless it has this shape."""
        value = self._tensors.get(name)
        self._unread.discard(name)
        if value is None or value.shape != shape or value.dtype.kind != "f":
            problem = "is missing" if value is None else f"is {list(value.shape)}"
            if value is not None and value.dtype.kind != "f":
                problem += f" of {value.dtype}"
            raise UserError(
                f"{self._path}: {name} {problem}, but {_OPTIONS} describes {list(shape)}; "
                "use the pair of files that was released together"
            )
        return value.astype(np.float32)


def _tensors(path) -> Mapping[str, np.ndarray]:
    tensors = {}

    def collect(name, item):
        if isinstance(item, h5py.Dataset):
            most = _MOST_PACKED * item.id.get_storage_size()
            if item.external or item.is_virtual or item.nbytes > most:
                raise UserError(
                    f"{path}: {name} has {item.nbytes:,} bytes that are not in the file; "
                    "copy or download it again"
                )
            tensors[name] = item[()]

    try:
        with sources.open_file(path) as stored, h5py.File(stored, "r") as file:
            file.visititems(collect)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"{path}: is damaged or not HDF5 ({error}); copy or download it again"
        ) from error
    return tensors


def _files(path) -> _BilmFiles:
    """Both files; one has this path."""
    folder, name = os.path.split(path)
    if name.endswith(_SUFFIX):
        partner = path.removesuffix(_SUFFIX) + f"_{_OPTIONS}"
        if anywhere.exists(partner):
            return _BilmFiles(partner, path)
    elif name.endswith(f"_{_OPTIONS}"):
        partner = path.removesuffix(f"_{_OPTIONS}") + _SUFFIX
        if anywhere.exists(partner):
            return _BilmFiles(path, partner)
    ending = _OPTIONS if name.endswith(_WEIGHTS) else _WEIGHTS
    others = _files_ending_in(folder or ".", ending)
    if len(others) != 1:
        names = ", ".join(map(os.path.basename, others)) or "none"
        raise UserError(
            f"{path}: needs the file *{ending} that belongs to it in the same folder, "
            f"which contains {names}"
        )
    pair = (others[0], path) if ending == _OPTIONS else (path, others[0])
    return _BilmFiles(*pair)


def _files_ending_in(directory, ending) -> list[str]:
    return [
        os.path.join(directory, name)
        for name in sorted(anywhere.listdir(directory))
        if name.endswith(ending)
    ]
