"""Extracts vectors from an encoder: one for each token, or one for each text.

    python extract_features.py --input_file=input.txt --output_file=output.jsonl \\
        --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4

Each input line is a text, or a pair written as `A ||| B`. --pooling=mean gives one vector
per text. --output_format=hdf5 takes less than half the space of JSON lines, and less time.
Memory does not grow with the number of texts.

A released ELMo (options.json and HDF5 weights) reads words that spaces separate, of any
script. Its texts must be in a file, which is read twice; memory grows with the number of
different words.

An HDF5 file holds a float32 dataset per layer, with names such as layer_-1. With pooling,
it has one row per text. Without pooling, it has one row per token, and the file also holds
token_ids, vocabulary (tokens by id) and offsets: text i has rows offsets[i] to
offsets[i + 1].
"""

import contextlib
import dataclasses
import os
import sys

import command_line
import options
from errors import UserError, count
from files import inputs, local, protected
from modeling.architectures.features import EMBEDDINGS, MIX
from text.instances import packing
from text.progress import Progress
from training.queries.options import QueryOptions, check_windows

_STANDARD_OUTPUT = "-"


@dataclasses.dataclass(frozen=True)
class Options(QueryOptions):
    """The release's flags, then ours."""

    input_file: str = options.field(
        help=f"One text per line, UTF-8, {inputs.PACKED}; - reads standard input."
    )
    output_file: str = options.field(
        help="Where to write the features; - is standard output, for JSON lines."
    )
    init_checkpoint: str = options.field(
        help="The weights: a checkpoint prefix, a directory, a Hugging Face model, or "
        "hf://organization/name[@revision]."
    )
    layers: list[str] | None = options.field(
        None,
        help="Layers to write: 0 is the first, -1 the last; embeddings is what the first "
        "one reads; mix is a weighted sum of the embeddings and all layers. By default "
        "-1,-2,-3,-4, or as many as there are, and -1 with pooling.",
    )
    max_seq_length: int = options.field(
        128,
        help="Maximum number of tokens per row, including special tokens.",
        at_most=options.MOST_TOKENS,
        at_least=packing.NUM_SPECIAL_TOKENS,
    )
    batch_size: int = options.field(
        32,
        help="Rows per batch, over all replicas.",
        at_most=options.MOST_ROWS,
        at_least=1,
    )
    use_tpu: bool = options.field(False, help="Same as --distribution=tpu.")
    master: str | None = options.field(None, help="The TPU's address.")
    num_tpu_cores: int = options.field(
        8, help="Has no effect: the TPU reports its number of cores."
    )
    use_one_hot_embeddings: bool = options.field(
        False, help="Has no effect: lookups are fast on every device."
    )

    output_format: str = options.field(
        "json", choices=("json", "hdf5"), help="The release's JSON lines, or HDF5."
    )
    pooling: str = options.field(
        "none",
        choices=("none", "mean", "cls"),
        help="none: a vector per token. mean: their mean, including special tokens. cls: "
        "the vector of [CLS]; over windows, their mean.",
    )
    doc_stride: int = options.field(
        0,
        help="Read longer texts in windows that begin this many tokens apart; a token "
        "gets its features from the window in which it is farthest from an end. 0 cuts "
        "longer texts off; pairs are always cut off.",
        at_least=0,
    )
    mix_weights: list[float] = options.field(
        [],
        help="For --layers=mix: the weights of embeddings and layers before the softmax, "
        "such as the layer_weights that run_ner.py --features=mix learned; by default, all "
        "are 0.",
    )
    mix_scale: float = options.field(
        1.0, help="For --layers=mix: what the sum is multiplied by, its gamma."
    )
    distribution: str = options.field(
        "one",
        choices=("one", "mirrored", "tpu"),
        help="one: a single device. mirrored: all GPUs of this host. tpu: a TPU.",
    )

    def __post_init__(self):
        super().__post_init__()
        check_windows(self.max_seq_length, self.doc_stride)
        if (
            self.mix_weights or self.mix_scale != 1.0
        ) and MIX not in self.chosen_layers():
            raise UserError(
                "--mix_weights and --mix_scale are for --layers=mix; add it, or remove them"
            )

    def chosen_layers(self, num_layers: int = 4) -> list[int | str]:
        """What to write of a model with so many layers."""
        if self.layers is not None:
            return [_layer(layer) for layer in self.layers]
        number = min(num_layers, 4) if self.pooling == "none" else 1
        return [-1 - i for i in range(number)]


def _layer(text: str) -> int | str:
    if text in (EMBEDDINGS, MIX):
        return text
    try:
        return int(text)
    except ValueError:
        raise UserError(
            f"--layers: {text!r} is not a number, {EMBEDDINGS} or {MIX}"
        ) from None


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.queries import query
from training.run import checks, distribution
from training.storage.source import Source
from training.queries.feature_files import WRITERS
from training.queries.text_features import (
    Counts,
    FeatureExtractor,
    Mix,
    check_pooling,
    encode,
    make_rows,
    pool,
)

# --- The run -------------------------------------------------------------------------


def main(flags: Options) -> None:
    """Does what the flags ask for."""
    _check_paths(flags)
    # Must precede anything that makes TensorFlow look for devices.
    strategy = distribution.make(
        "tpu" if flags.use_tpu else flags.distribution, tpu=flags.master
    )
    checks.check_division("batch_size", flags.batch_size, strategy.num_replicas_in_sync)
    source = Source.open(flags.init_checkpoint)
    config, tokenizer, tensors = _read_model(flags, source)
    # A line that cannot be read is found now, not in an hour.
    is_file = flags.input_file != inputs.STANDARD_INPUT
    total = sum(1 for _ in _lines(flags)) if is_file else None
    mix = Mix(flags.mix_weights, flags.mix_scale)
    layers = flags.chosen_layers(config.num_hidden_layers)
    pooling = flags.pooling
    cls_last = not tokenizer.vocabulary.head
    encoder = FeatureExtractor(strategy, config, layers, pooling, mix, cls_last)
    weights = {v.path: v for v in encoder.model.weights}
    if tensors is None:
        model = encoder.model
        _say(source.load(weights, model.required_variables, model.scope))
    else:
        for name, value in tensors.items():
            weights[name].assign(value)

    lines = _lines(flags)
    counts = Counts()
    rows = make_rows(lines, tokenizer, flags, counts)
    pad_id = tokenizer.vocabulary.pad_id
    encoded = encode(rows, encoder, flags.max_seq_length, flags.batch_size, pad_id)
    progress = Progress("encoding", total, "texts")
    mode = WRITERS[flags.output_format].mode
    with _output(flags.output_file, mode) as file:
        with progress:
            _write(flags, file, encoded, layers, tokenizer.vocabulary, progress)
        if not counts.texts:
            raise UserError(f"{flags.input_file}: contains no text; write one per line")
    _report(flags, counts)


def _lines(flags: Options):
    return inputs.lines(flags.input_file, max_line_mb=flags.max_line_mb)


def _output(path, mode):
    if path == _STANDARD_OUTPUT:
        return contextlib.nullcontext(sys.stdout)
    local.remove_temporaries(os.path.realpath(path))
    return local.replacing(path, mode)


def _write(flags: Options, file, encoded, layers, vocabulary, progress):
    writer = WRITERS[flags.output_format](file, layers, vocabulary)
    if flags.pooling != "none":
        encoded = pool(encoded, flags.pooling)
    with contextlib.closing(writer):
        for row, values in encoded:
            if flags.pooling == "none":
                writer.write_tokens(row, values)
            else:
                writer.write_text(values)
            if row.ends_text:
                progress.advance(1)


def _report(flags: Options, counts):
    _say(
        f"{flags.output_file}: features of {count(counts.texts, 'text')}, "
        f"{count(counts.tokens, 'token')} including special ones"
    )
    if counts.windowed:
        _say(f"read in windows: {count(counts.windowed, 'text')} longer than a row")
    if counts.cut:
        hint = " (pairs have no windows)" if flags.doc_stride else ""
        remedy = "" if flags.doc_stride else "; --doc_stride reads them in windows"
        _say(
            f"warning: cut off {count(counts.cut, 'text')} at "
            f"--max_seq_length={flags.max_seq_length}{hint}{remedy}"
        )


def _say(message):
    print(message, file=sys.stderr, flush=True)


# --- The inputs ----------------------------------------------------------------------


def _check_paths(flags: Options):
    """Refuses now what would otherwise fail at the end."""
    read = [flags.init_checkpoint, flags.vocab_file, flags.bert_config_file]
    if flags.input_file != inputs.STANDARD_INPUT:
        paths = inputs.expand([flags.input_file])
        if paths != [flags.input_file]:
            raise UserError(f"{flags.input_file}: matches {len(paths)} files; name one")
        read += paths
    path = flags.output_file
    if path != _STANDARD_OUTPUT:
        protected.check_output(path, read)
    is_stream = path == _STANDARD_OUTPUT or local.is_stream(path)
    if is_stream and flags.output_format == "hdf5":
        raise UserError(f"{path}: HDF5 can only be written to a file; name one")


def _read_model(flags: Options, source: Source):
    """The config and the tokenizer; and the tensors of a model of characters, else None."""
    if source.format.needs_words:
        return _for_words(flags, source)
    model = query.read_model(flags, source)
    _check_sizes(flags, model.config)
    return model.config, model.tokenizer, None


def _for_words(flags: Options, source: Source):
    """The same of a model that reads characters, for the words of the texts."""
    for name in ("vocab_file", "bert_config_file"):
        if getattr(flags, name):
            raise UserError(
                f"--{name}={getattr(flags, name)}: {source.prefix} reads characters, as "
                "its own config says; leave this flag out"
            )
    if flags.input_file == inputs.STANDARD_INPUT:
        raise UserError(
            "--input_file=-: for a model that reads characters, texts are read twice, "
            "first for their words; write them to a file"
        )
    tokenizer, config, tensors = source.format.for_words(_lines(flags))
    _check_sizes(flags, config)
    number = config.vocab_size - len(tokenizer.vocabulary.special_ids)
    _say(f"{source.prefix}: read for {number:,} different words")
    return config, tokenizer, tensors


def _check_sizes(flags: Options, config):
    query.check_length(flags, config)
    check_pooling(flags.pooling, config)
    number = config.num_hidden_layers
    layers = flags.chosen_layers(number)
    for layer in layers:
        if layer not in (EMBEDDINGS, MIX) and not -number <= layer < number:
            raise UserError(
                f"--layers={','.join(map(str, layers))}: there is no layer {layer}; the "
                f"model has {number}, from 0 to {number - 1}, or from -1 back to -{number}"
            )
    if len(set(layers)) < len(layers):
        raise UserError(
            f"--layers={','.join(map(str, layers))}: list each of them once"
        )
    if flags.mix_weights and len(flags.mix_weights) != number + 1:
        raise UserError(
            f"--mix_weights: {len(flags.mix_weights)} numbers; the embeddings and "
            f"{number} layers need {number + 1}"
        )


if __name__ == "__main__":
    command_line.run(main, Options)
