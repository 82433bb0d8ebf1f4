"""Converts checkpoints between the layouts of several libraries, and edits them.

    python convert_checkpoint.py --input=my/mrpc --show
    python convert_checkpoint.py --input=my/mrpc --output_dir=my/mrpc_hf \\
        --layout=hugging_face --vocab_file=my/vocab.txt
    python convert_checkpoint.py --input=bert-base-uncased --output_dir=released \\
        --layout=release

An input is a prefix, a directory or a folder with model.safetensors or the files of a
model that reads characters (with --words_file); several checkpoints are averaged.
Conversion does not change any number: a round trip gives the same bits, and what both
layouts call "gelu" (tanh in the release, erf in the other) keeps its meaning.
"""

import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping

import numpy as np

import command_line
import extensions
import options
from errors import UserError, count
from files import hub, sources
from modeling.architectures.config import EncoderConfig
from text.tokenizers.table import (
    TokenizerOptions,
    kind_of_tokenizer,
)
from text.tokenizers.tokenizer import Tokenizer
from training.interchange import table as layouts

_BUNDLE = "bert_model.ckpt"
_UNUSED = re.compile(r"\[unused\d+\]$")


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    input: list[str] = options.field(
        help="Checkpoint: prefix, directory, model.safetensors or "
        "hf://organization/name[@revision]. Several checkpoints of the same model are "
        "averaged."
    )
    output_dir: str | None = options.field(
        None, help="Folder to write; it must be empty or absent."
    )
    layout: str = options.field(
        "release",
        choices=("release", "hugging_face", "sentence_transformers", "peft"),
        help=f"What to write: {_BUNDLE}.* with bert_config.json, {layouts.WEIGHTS} with "
        "config.json, an encoder of sentence-transformers with what run_retrieval.py "
        "trained, or the low-rank adapters of a run alone, which Hugging Face's peft "
        "reads. In the others, adapters are merged.",
    )
    push_to: str | None = options.field(
        None,
        help="Where to upload the folder with its card, hf://organization/name[@branch], "
        "after it is written and listed. A new model there is private.",
        only_for={"layout": ("hugging_face", "sentence_transformers")},
    )
    head: str | None = options.field(
        None,
        choices=layouts.HEADS,
        help="The purpose of a head that has no name of its own in Hugging Face's layout; "
        "by default, taken from task.json or config.json next to the input, or from its "
        "shape.",
    )
    network: str | None = options.field(
        None,
        choices=layouts.NETWORKS,
        help="Which network to take out of a checkpoint of several."
        + extensions.help_of("network"),
        only_for={"words_file": options.ABSENT},
    )
    bert_config_file: str | None = options.field(
        None,
        help="The architecture; by default, the config next to the input.",
        only_for={"words_file": options.ABSENT},
    )
    vocab_file: str | None = options.field(
        None,
        help="The vocabulary; by default, the one next to the input, if present: a "
        "vocab.txt, a .model, or a .json with its merges.",
        only_for={"words_file": options.ABSENT},
    )
    show: bool = options.field(
        False, help="Print names, shapes and statistics; write nothing."
    )
    compare_with: str | None = options.field(
        None, help="Print how a second checkpoint differs; write nothing."
    )
    keep_optimizer: bool = options.field(
        False,
        help="Keep Adam's slots and the step, in the release's layout.",
        only_for={"layout": "release"},
    )
    keep_layers: list[int] | None = options.field(
        None,
        help="Make a student of these layers, such as 0,2,4,7,9,11 for DistilBERT's: the "
        "numbers of the input's layers, from 0 and ascending. Embeddings, pooler and heads "
        "stay as they are.",
        at_least=0,
    )
    add_words_file: str | None = options.field(
        None,
        help="Words to add to the vocabulary, one per line: they replace [unusedN] tokens "
        "first, then extend the vocabulary. A new word starts as the mean of its pieces.",
    )
    words_file: list[str] = options.field(
        [],
        help="For a model that reads characters: texts whose words, separated by spaces, "
        "the model is to know. It becomes a model with a table of them, for all scripts."
        + extensions.help_of("words_file"),
    )
    vocab_size: int = options.field(
        0,
        help="Lengthen the table of tokens, for example by the special tokens with which "
        "a language model is fine-tuned; new rows are random. 0 leaves it unchanged.",
        at_least=0,
        below=2**31,
    )
    max_position_embeddings: int = options.field(
        0,
        help="Lengthen the position table; new positions start as copies. 0 leaves it "
        "unchanged.",
        at_least=0,
        below=2**31,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.show and self.compare_with:
            raise UserError("--show and --compare_with: pass one of them")
        if not (self.show or self.compare_with or self.output_dir):
            raise UserError(
                "nothing to do; pass --show, --compare_with or --output_dir"
            )
        if self.push_to:
            hub.parse(self.push_to)
            sources.refuse_remote(self.output_dir)
        if self.keep_optimizer and len(self.input) > 1:
            raise UserError("--keep_optimizer: an average has no optimizer to keep")
        if self.keep_optimizer and (self.network or self.changes_model):
            raise UserError(
                "--keep_optimizer: slots would not fit one network of several, a student "
                "of fewer layers, nor added words or positions"
            )
        if self.layout == "peft" and (len(self.input) > 1 or self.changes_model):
            raise UserError(
                "--layout=peft writes the adapters of one --input as they are; merge them "
                "first, with another --layout"
            )
        kept = self.keep_layers
        if kept is not None and (not kept or kept != sorted(set(kept))):
            raise UserError(
                f"--keep_layers={','.join(map(str, kept))}: list the layers to keep once "
                "each, in ascending order from 0"
            )

    @property
    def changes_model(self) -> bool:
        return bool(
            self.add_words_file
            or self.vocab_size
            or self.max_position_embeddings
            or self.keep_layers
        )

    @property
    def own_head(self) -> dict:
        """What --head says about the task."""
        return {"head": self.head} if self.head else {}


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training import backend  # noqa: F401  TensorFlow, without its log messages
from training.run import capacity, checks, settle
from training.storage import (
    checkpoint,
    checkpoint_contents,
    model_card,
    whole_model,
)
from training.storage.folder import TASK, TEXT, Folder, step_of
from training.storage.source import Source
from files import anywhere, inputs
from training.interchange import (
    hugging_face,
    keep_layers,
    networks,
    peft,
    resize,
    sentence_folder,
)
from training.interchange.vector_settings import BIAS, KERNEL, read_settings


@dataclasses.dataclass
class Edited:
    """What is written of the inputs."""

    tensors: dict[str, np.ndarray]
    config: EncoderConfig
    tokenizer: Tokenizer | None
    task: dict  # what its task.json says, or would say
    text: dict  # what its text.json says


# === Reading and changing ============================================================


def _read_for_words(flags: Options, models: list[Source]) -> Edited:
    """A model that reads characters, for the words of a text."""
    if len(models) > 1 or not models[0].format.needs_words:
        raise UserError(
            "--words_file is for one --input, a model that reads characters"
        )
    paths = inputs.expand(flags.words_file)
    lines = (line for path in paths for line in inputs.lines(path))
    tokenizer, config, tensors = models[0].format.for_words(lines)
    return Edited(tensors, config, tokenizer, {}, {})


def _read(flags: Options, source_model: settle.Model, models: list[Source]) -> Edited:
    """The model to write, of one input or as the mean of several."""
    first, config = source_model.source, source_model.config
    tokenizer = _read_tokenizer(flags, source_model)
    tensors = [
        whole_model.read(source, config, with_optimizer=flags.keep_optimizer)
        for source in models
    ]
    alone = flags.layout != "release" or flags.changes_model
    model_weights, config = networks.take(
        first.prefix,
        checkpoint_contents.average(tensors, [source.prefix for source in models]),
        config,
        flags.network,
        alone,
    )
    text = first.open.read(TEXT)
    if not text and tokenizer:
        text = first.text.of_weights(kind_of_tokenizer(tokenizer))
    task = first.task
    # A run reads the settings of text in task.json, if there is one.
    return Edited(model_weights, config, tokenizer, task and text | task, text)


def _read_tokenizer(flags: Options, source_model: settle.Model) -> Tokenizer | None:
    """The tokenizer of --vocab_file, or of the vocabulary next to an input."""
    if not source_model.vocabulary:
        return None
    tokenizer = source_model.vocabulary.load(source_model.flags)
    where = flags.bert_config_file or source_model.source.folder
    size = max(source_model.config.vocab_size, flags.vocab_size)
    longer = dataclasses.replace(source_model.config, vocab_size=size)
    checks.check_vocabulary(tokenizer.vocabulary, longer, where)
    return tokenizer


def _check_tokenization(tokenizer, source: Source, task):
    """Refuses flags that contradict the files next to a checkpoint."""
    tokenizer.check_release(source.prefix)
    settings = tokenizer.settings
    source.text.check(settings, kind_of_tokenizer(tokenizer))
    noted_settings = source.text.record[1] | task
    for name, value in settings.items():
        # Another vocabulary may spell the same tokens.
        if name != "vocab_sha256" and noted_settings.get(name, value) != value:
            raise UserError(
                f"{source.folder}: the model was trained on text split "
                f"differently; pass --{name}={str(noted_settings[name]).lower()}"
            )


def _add_words(model: Edited, flags: Options) -> None:
    """Gives words their own rows; prints how many were added."""
    tokenizer = model.tokenizer
    with_tokens = tokenizer and kind_of_tokenizer(tokenizer).with_tokens
    tokens = list(tokenizer.vocabulary.tokens) if tokenizer else []
    if not tokenizer or not with_tokens(tokenizer, tokens):
        raise UserError(
            "--add_words_file needs the --vocab_file of a WordPiece model, a vocab.txt"
        )
    free = [i for i, token in enumerate(tokens) if _UNUSED.match(token)]
    rows, num_known = {}, 0  # row -> ids of the pieces whose mean it becomes
    for number, line in enumerate(inputs.lines(flags.add_words_file), start=1):
        parts = tokenizer.splitter.words(line)
        if len(parts) > 1:
            raise UserError(
                f"{flags.add_words_file}:{number}: {line.strip()!r} is always split into "
                f"{' '.join(parts)}, so it would never be found; list single words"
            )
        if not parts or parts[0] in tokens:
            num_known += len(parts)
            continue
        row = free.pop(0) if free else len(tokens)
        tokens[row : row + 1] = parts
        rows[row] = tokenizer.encode(line)
    size = max(len(tokens), model.config.vocab_size)
    words = whole_model.network(model.config).encoder.word_embeddings.path
    for name, axis in {words: 0, **model.config.token_axes}.items():
        if name in model.tensors:
            table = np.moveaxis(model.tensors[name], axis, 0)
            padding = [(0, size - len(table)), *[(0, 0)] * (table.ndim - 1)]
            longer = np.pad(table, padding)
            for row, pieces in rows.items():
                longer[row] = table[pieces].mean(axis=0)
            model.tensors[name] = np.moveaxis(longer, 0, axis)
    model.config = dataclasses.replace(model.config, vocab_size=size)
    model.tokenizer = with_tokens(tokenizer, tokens)
    for settings in (model.task, model.text):
        settings.pop("vocab_sha256", None)  # it was the old one's
    print(
        f"{count(len(rows), 'word')} added, {num_known} already known; vocab_size is {size}"
    )


# === Writing =========================================================================


def _write(model: Edited, flags: Options, models: list[Source]) -> None:
    directory = flags.output_dir
    modules = {}
    if flags.layout == "sentence_transformers":
        modules = _take_modules(model)
    size = sum(value.size for value in model.tensors.values())
    described = None
    beside = modules | (dict(model.tokenizer.files) if model.tokenizer else {})
    if flags.layout == "release":
        beside["bert_config.json"] = model.config.to_json_string()
        notes = {TASK: model.task, TEXT: model.text}
        for name, note in notes.items():
            if note:
                beside[name] = json.dumps(note, ensure_ascii=False, indent=2) + "\n"
        anywhere.write_files(directory, beside)
        written = os.path.join(directory, _BUNDLE)
        checkpoint.write_bundle(written, model.tensors)
    else:
        described = model.tokenizer and model.tokenizer.hugging_face()
        written = hugging_face.write(
            directory,
            model.tensors,
            model.config,
            task=model.task | flags.own_head,
            # Without its words, a tokenizer would be a trap.
            tokenizer=described,
            beside=beside,
            card=_card(flags, models, model.config, size),
        )
    origins = ", ".join(source.prefix for source in models)
    print(f"{written}: {len(model.tensors)} tensors, {size:,} numbers, from {origins}")
    if described and described.difference:
        print(f"warning: {directory}: {described.difference}", file=sys.stderr)
    if not model.tokenizer:
        print(
            "no vocabulary was next to the input, so none is here; --vocab_file adds one"
        )


def _take_modules(model: Edited) -> dict[str, bytes]:
    """Leaves the encoder alone; returns the files about what follows it."""
    encoder = whole_model.network(model.config).encoder
    layer = {n: model.tensors[n] for n in (KERNEL, BIAS) if n in model.tensors}
    own = {variable.path for variable in encoder.weights}
    if rest := model.tensors.keys() - own - layer.keys():
        heads = ", ".join(sorted({name.partition("/")[0] for name in rest}))
        print(f"the head is left out, which vectors do not need: {heads}")
    model.tensors = {n: value for n, value in model.tensors.items() if n in own}
    vectors, model.task = read_settings(model.task), {}
    return sentence_folder.module_files(vectors, encoder.hidden_size, layer)


def _write_peft(flags: Options, source_model: settle.Model) -> None:
    """Writes the adapters of a run without their base."""
    source = source_model.source
    adapted = source.adapters
    if not adapted:
        raise UserError(
            f"{source.prefix}: contains no adapters; --layout=peft is for a run with "
            "--lora_rank, or an adapter of peft"
        )
    config = source_model.config
    tensors = {
        name: value
        for name, value in adapted.read_stored().items()
        if not checkpoint_contents.of_training(name)
    }
    written = peft.write(
        flags.output_dir,
        tensors,
        source.read(),
        layouts.adapter_of(config),
        base=adapted.note.base,
        alpha=adapted.note.alpha,
        task=source.task | flags.own_head,
        is_alone=adapted.is_alone,
    )
    print(
        f"{written}: {len(tensors)} tensors, adapters of {adapted.note.base}; peft needs "
        "that in Hugging Face's layout"
    )


def _card(
    flags: Options, models: list[Source], config: EncoderConfig, size: int
) -> Callable[[Mapping], str]:
    """Makes the card from the content of config.json."""
    name = os.path.basename(os.path.abspath(flags.output_dir))
    name = hub.parse(flags.push_to).name if flags.push_to else name
    step = step_of(models[0].prefix)
    facts = model_card.facts_of(models[0].open, config, size, step)
    of_vectors = flags.layout == "sentence_transformers"
    is_trained = not of_vectors or read_settings(models[0].task) is not None
    if len(models) > 1 or flags.changes_model or not is_trained:
        facts = dataclasses.replace(facts, scores={})  # of another model
    return lambda theirs: model_card.text(name, theirs, facts, of_vectors, is_trained)


def main(flags: Options) -> int:
    """Does what the flags ask for.

    Returns:
        exit status: 1 if --compare_with found a difference.
    """
    models = [Source.open(path) for path in flags.input]
    if flags.show:
        for source in models:
            checkpoint_contents.show(source)
        return 0
    if flags.compare_with:
        other = Source.open(flags.compare_with)
        return int(not checkpoint_contents.compare(models[0], other))
    output = Folder.open(flags.output_dir)
    output.check_empty()
    source_model = settle.Model(flags, source=models[0], folder=output)
    if flags.layout == "peft":
        with output.hold_empty():
            _write_peft(flags, source_model)
        return 0
    if flags.words_file:
        model = _read_for_words(flags, models)
    else:
        model = _read(flags, source_model, models)
    if model.tokenizer and (flags.add_words_file or flags.layout != "release"):
        _check_tokenization(model.tokenizer, models[0], model.task)
    if flags.keep_layers:
        model.tensors, model.config = keep_layers.keep(
            models[0].prefix, model.tensors, model.config, flags.keep_layers
        )
    if flags.add_words_file:
        _add_words(model, flags)
    for name, lengthen in (
        ("vocab_size", resize.add_words),
        ("max_position_embeddings", resize.add_positions),
    ):
        if number := getattr(flags, name):
            if math.isfinite(getattr(model.config, name)):  # else refused below
                longer = dataclasses.replace(model.config, **{name: number})
                capacity.check_network(longer, f"--{name}={number}")
            encoder = whole_model.network(model.config).encoder
            model.config = lengthen(model.tensors, encoder, number)
    with output.hold_empty():
        _write(model, flags, models)
        if flags.push_to:
            names = [
                os.path.relpath(os.path.join(folder, name), flags.output_dir)
                for folder, _, some in os.walk(flags.output_dir)
                for name in some
            ]
            print(f"uploaded: {hub.push(flags.output_dir, flags.push_to, names)}")
    return 0


if __name__ == "__main__":
    command_line.run(main, Options)
