"""Learns a vocabulary from text, split into words exactly as the tokenizer does.

    python build_vocab.py --input_file='corpus/*.txt' --output_file=vocab/vocab.txt
    python build_vocab.py --input_file='corpus/*.txt' --output_file=bpe/vocab.json
    python build_vocab.py --input_file='corpus/*.txt' --output_file=albert/spiece.model
    python build_vocab.py --input_file='corpus/*.txt' --output_file=gpt/encoder_bpe.json

vocab.txt is a WordPiece vocabulary for BERT; vocab.json, with merges.txt next to it, is
byte-level BPE for RoBERTa; spiece.model is a SentencePiece model for ALBERT
or, with --special_tokens, XLNet or T5;
encoder_bpe.json, with vocab.bpe next to it, is BPE for GPT-1.

It streams the text, so there is no limit on its size: 100 MB take less than a minute and
200 MB of memory. SentencePiece learns from a random sample, see --input_sentence_size. The
same text and flags produce the same file.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import sys
import unicodedata
from collections.abc import Iterator

import options
from errors import UserError
from text import progress
from text.corpus import formats
from text.files import inputs, local, protected, sources
from text.tokenizers import (
    bpe_learning,
    byte_bpe,
    gpt_bpe,
    kinds,
    recorded_settings,
    sentencepiece,
    sentencepiece_learning,
    wordpiece_learning,
)
from text.tokenizers.byte_bpe import ByteBpe, ByteSplitter
from text.tokenizers.cleaner import loses_voicing
from text.tokenizers.gpt_bpe import GptBpe
from text.tokenizers.kinds import TokenizerOptions
from text.tokenizers.sentencepiece import SentencePiece
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from text.tokenizers.word_by_word import Splitter
from text.tokenizers.word_counts import WordCounts
from text.tokenizers.wordpiece import WordPiece, WordSplitter

_KINDS = {
    "wordpiece": WordPiece,
    "byte_bpe": ByteBpe,
    "sentencepiece": SentencePiece,
    "gpt_bpe": GptBpe,
}
_RELEASED, _UNUSED = 30522, 994  # tokens of the release, and its [unusedN] among them
_LARGEST = 10_000_000  # tokens; far more than anyone needs, and still fits in memory


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    kind: str | None = options.field(
        None,
        choices=tuple(_KINDS),
        help="What to learn; by default, what the name of --output_file says.",
    )
    input_file: list[str] = options.field(
        help="Text files, UTF-8, plain or .gz: comma-separated names and globs."
    )
    output_file: str = options.field(
        help="The vocabulary to write: NAME.txt is WordPiece, one token per line; "
        "FOLDER/vocab.json is byte-level BPE, with merges.txt next to it; NAME.model is "
        "SentencePiece; encoder_bpeNAME.json is GPT-1's BPE, with vocabNAME.bpe."
    )
    vocab_size: int | None = options.field(
        None,
        help="Number of tokens to write, of all kinds; by default 30522, with "
        "SentencePiece 30000 for ALBERT and 32000 for XLNet and T5, with GPT-1's BPE "
        "40478, as in "
        "the releases.",
    )
    special_tokens: str = options.field(
        "albert",
        choices=tuple(sentencepiece.FAMILIES),
        help="SentencePiece: whose special tokens and marks the model has. Scripts know "
        "the family of a model by them. t5 keeps text as it is; when a model is read, its "
        "100 tokens <extra_id_N> are added.",
    )
    num_unused: int | None = options.field(
        None,
        help="Number of [unusedN] tokens to reserve for your own words; by default 994, "
        "as in the release, and fewer if --vocab_size is below 30522, in proportion. Other "
        "kinds have none.",
    )
    min_character_count: int = options.field(
        5,
        help="Leave out non-ASCII characters that occur less often than this; words that "
        "contain them become [UNK]. Byte-level BPE has a token for every byte instead, and "
        "SentencePiece --character_coverage.",
    )
    min_frequency: int = options.field(
        2,
        help="Join two pieces only if they occur together at least this often. Not for "
        "SentencePiece.",
    )
    character_coverage: float = options.field(
        0.99995,
        help="SentencePiece: the share of the characters that get a piece; the rarest "
        "become <unk>.",
    )
    input_sentence_size: int = options.field(
        500_000,
        help="SentencePiece: learn from this many lines, drawn at random. Memory grows "
        "with it, to about 1 GB for half a million sentences.",
    )
    heldout_share: float = options.field(
        0.01, help="Share of the lines to evaluate on instead of learning from them."
    )
    input_format: str = options.field(
        "sentences",
        choices=formats.FORMATS,
        help="Same as in create_pretraining_data.py; only jsonl makes a difference here.",
    )
    json_field: str = options.field(
        "text", help="The key of the text, with --input_format=jsonl."
    )
    max_line_mb: int = options.field(inputs.MAX_LINE_MB, help=inputs.MAX_LINE_HELP)

    def __post_init__(self):
        for name in ("num_unused", "min_character_count", "min_frequency"):
            if (getattr(self, name) or 0) < 0:
                raise UserError(f"--{name}={getattr(self, name)} is less than 0")
        if self.max_line_mb < 1:
            raise UserError(f"--max_line_mb={self.max_line_mb}: must be at least 1")
        if not 0.9 <= self.character_coverage <= 1:
            raise UserError(
                f"--character_coverage={self.character_coverage}: must be from 0.9 to 1"
            )
        if self.input_sentence_size <= 100:
            raise UserError(
                f"--input_sentence_size={self.input_sentence_size}: must be above 100"
            )
        sources.refuse_remote(self.output_file)
        if not self.output_file or os.path.isdir(self.output_file):
            raise UserError(f"--output_file={self.output_file}: must name a file")
        self._check_kind()
        if self.vocab_size is None:
            # How a frozen object gets a default that depends on another field.
            sizes = {SentencePiece: self.symbols.vocab_size, GptBpe: 40478}
            object.__setattr__(self, "vocab_size", sizes.get(self.learned, _RELEASED))
        if self.num_unused is None and self.learned is WordPiece:
            number = min(_UNUSED, max(0, self.vocab_size) * _UNUSED // _RELEASED)
            object.__setattr__(self, "num_unused", number)
        least = (self.num_unused or 0) + len(SPECIAL_TOKENS)
        parts = f"special tokens plus --num_unused={self.num_unused}"
        if self.learned is GptBpe:
            least, parts = 2, "<unk> plus a line break"
        if self.is_byte_level:
            least, parts = len(SPECIAL_TOKENS) + 256, "special tokens plus all bytes"
            if os.path.basename(self.output_file) != ByteBpe.vocabulary_file:
                raise UserError(
                    f"--output_file={self.output_file}: a byte-level vocabulary must be "
                    f"named {ByteBpe.vocabulary_file}"
                )
        if self.is_sentencepiece:
            least = self.symbols.number
            parts = (
                f"special tokens plus marks of --special_tokens={self.special_tokens}"
            )
        if not least < self.vocab_size <= _LARGEST:
            raise UserError(
                f"--vocab_size={self.vocab_size}: must be above {least}, the number of "
                f"{parts}, and at most {_LARGEST:,}"
            )
        if self.heldout_share and not 1e-6 <= self.heldout_share <= 0.5:
            raise UserError(
                f"--heldout_share={self.heldout_share}: must be 0, or from 1e-6 to 0.5"
            )

    def _check_kind(self):
        named = kinds.kind_of(self.output_file)
        if self.kind and _KINDS[self.kind] is not named:
            wanted = f"end in {os.path.splitext(_KINDS[self.kind].vocabulary_file)[1]}"
            if _KINDS[self.kind] is GptBpe:
                wanted = "be encoder_bpeNAME.json"
            raise UserError(
                f"--output_file={self.output_file}: with --kind={self.kind}, its name must "
                f"{wanted}"
            )
        names = "character_coverage", "input_sentence_size", "special_tokens"
        if self.is_sentencepiece:
            names = "num_unused", "min_character_count", "min_frequency", "split_cjk"
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            unset = (True,) if name == "split_cjk" else ()  # the only way there is
            if getattr(self, name) not in (defaults[name], *unset):
                raise UserError(
                    f"--{name} does not apply to {self.output_file}, which is "
                    f"{named.__name__}; leave it out"
                )

    @functools.cached_property
    def learned(self) -> type[Tokenizer]:
        """The kind of vocabulary."""
        return kinds.kind_of(self.output_file)

    @property
    def symbols(self) -> sentencepiece_learning.Symbols:
        """What a SentencePiece model has besides what is learned."""
        return sentencepiece_learning.SYMBOLS[self.special_tokens]

    @property
    def is_sentencepiece(self) -> bool:
        return self.learned is SentencePiece

    @property
    def is_byte_level(self) -> bool:
        return self.learned is ByteBpe

    @functools.cached_property
    def splitter(self) -> Splitter | ByteSplitter:
        if self.learned is GptBpe:
            return gpt_bpe.splitter(self)
        return ByteSplitter() if self.is_byte_level else WordSplitter.of(self)

    @property
    def merges_file(self) -> str | None:
        """The second file of a vocabulary, if it has one."""
        if self.learned is GptBpe:
            return gpt_bpe.merges_path(self.output_file)
        folder = os.path.dirname(self.output_file)
        return os.path.join(folder, byte_bpe.MERGES) if self.is_byte_level else None


def measure(tokenizer: Tokenizer, lines: Iterator[str]) -> dict[str, int]:
    """Counts `words`, `pieces` and `unknown` words of some text."""
    continues = tokenizer.vocabulary.is_continuation.tolist()
    if tokenizer.vocabulary.joins_next.any():  # it is a word's end that is marked
        continues = tokenizer.vocabulary.joins_next.tolist()
    if isinstance(tokenizer, SentencePiece):  # whose masks have other words
        space = sentencepiece.SPACE
        continues = [token[:1] != space for token in tokenizer.vocabulary.tokens]
    found = {"words": 0, "pieces": 0, "unknown": 0}
    for line in lines:
        ids = tokenizer.encode(f" {line}")
        found["words"] += len(ids) - sum(map(continues.__getitem__, ids))
        found["pieces"] += len(ids)
        found["unknown"] += ids.count(tokenizer.vocabulary.unk_id)
    return found


def _lines(paths, chosen, what):
    """Yields each line of the text, and whether it is held out."""
    every = round(1 / chosen.heldout_share) if chosen.heldout_share else 0
    line_format = "jsonl" if chosen.input_format == "jsonl" else "sentences"
    size = sum(map(sources.size, paths))
    files = ((path, sources.status(path)) for path in paths)
    pieces = formats.pieces(files, line_format, size)
    number = 0
    with progress.Progress(what, size, "MB", scale=1e6) as shown:
        for span in (span for piece in pieces for span in piece):
            lines = formats.read(
                span, line_format, chosen.json_field, False, chosen.max_line_mb
            )
            for line in lines:
                if line is not None:
                    number += 1
                    yield line, every > 0 and number % every == 0
            shown.advance(span.size)


def _count(paths, chosen):
    splitter = chosen.splitter
    counts = WordCounts(splitter)
    warned = chosen.learned is GptBpe  # it has no such flag
    for line, is_held_out in _lines(paths, chosen, "counting words"):
        if not is_held_out:
            counts.add(line)
        if not warned and splitter.decomposes(line):
            print(f"warning: {kinds.DECOMPOSITION_WARNING}", file=sys.stderr)
            warned = True
    counts.fold()
    if not counts.words:
        raise UserError(f"no words in {len(paths)} file(s), such as {paths[0]}")
    return counts


def main(chosen: Options) -> None:
    paths = inputs.expand(chosen.input_file)
    outputs = filter(None, (chosen.output_file, chosen.merges_file))
    protected.refuse(list(outputs), paths)
    recorded_settings.check_place(chosen.output_file)
    os.makedirs(os.path.dirname(chosen.output_file) or ".", exist_ok=True)
    if chosen.is_sentencepiece:
        _build_sentencepiece(paths, chosen)
        return
    # Opened first: an hour's work should not end at a folder that is not writable.
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(local.replacing(chosen.output_file, "w"))
        if chosen.merges_file:
            merges_file = stack.enter_context(local.replacing(chosen.merges_file, "w"))
        counts = _count(paths, chosen)
        print("learning pieces", file=sys.stderr)
        tokens, merges = _learn(counts, chosen)
        if merges is None:
            file.writelines(f"{token}\n" for token in tokens)
        else:
            ids = {token: id for id, token in enumerate(tokens)}
            file.write(json.dumps(ids, ensure_ascii=False))
            lines = ["#version: 0.2", *map(" ".join, merges)]
            merges_file.writelines(f"{line}\n" for line in lines)
    _report(counts, tokens, chosen)
    tokenizer = _load_and_record(chosen)
    _report_measured(paths, tokenizer, chosen)


def _load_and_record(chosen) -> Tokenizer:
    """The tokenizer that was learned, whose flags of text are noted next to it."""
    # With these flags, whatever an earlier vocabulary of this name was learned with.
    tokenizer = chosen.learned.load(chosen.output_file, chosen)
    recorded_settings.write(chosen.output_file, tokenizer)
    return tokenizer


def _learn(counts, chosen):
    """The tokens by id, and the merges; None for WordPiece."""
    sizes = {"vocab_size": chosen.vocab_size, "min_frequency": chosen.min_frequency}
    if chosen.is_byte_level:
        return bpe_learning.learn_byte_bpe(counts, **sizes)
    sizes["min_character_count"] = chosen.min_character_count
    if chosen.learned is GptBpe:
        return bpe_learning.learn_gpt_bpe(counts, chosen.splitter, **sizes)
    sizes["num_unused"] = chosen.num_unused
    return wordpiece_learning.learn(counts, chosen.splitter, **sizes), None


def _build_sentencepiece(paths, chosen):
    cleaner = sentencepiece.FAMILIES[chosen.special_tokens].cleaner(
        chosen.do_lower_case, SentencePiece.strips_accents(chosen)
    )
    characters = collections.Counter()
    lines, warned = 0, False

    def cleaned():
        nonlocal lines, warned
        for line, is_held_out in _lines(paths, chosen, "reading"):
            if is_held_out or not (clean := cleaner.clean(line)):
                continue
            characters.update(unicodedata.normalize("NFKC", clean))  # as the model does
            lines += 1
            if cleaner.strip_accents and not warned:
                warned = loses_voicing(line)
                if warned:
                    print(f"warning: {kinds.DECOMPOSITION_WARNING}", file=sys.stderr)
            yield clean
        print("learning pieces", file=sys.stderr)

    with local.replacing(chosen.output_file) as file:
        file.write(
            sentencepiece_learning.learn(
                cleaned(),
                chosen.symbols,
                vocab_size=chosen.vocab_size,
                character_coverage=chosen.character_coverage,
                input_sentence_size=chosen.input_sentence_size,
            )
        )
    tokenizer = _load_and_record(chosen)
    _report_model(tokenizer, lines, characters, chosen)
    _report_measured(paths, tokenizer, chosen)


def _report_model(tokenizer, lines, characters, chosen):
    sentinels = tokenizer.family.num_sentinels
    number = len(tokenizer.vocabulary) - sentinels
    used = min(lines, chosen.input_sentence_size)
    learned = f"{number:,} tokens, learned from {used:,} of {lines:,} lines"
    print(f"{chosen.output_file}: {learned}")
    if sentinels:
        print(
            f"with {sentinels} more, <extra_id_0> to <extra_id_{sentinels - 1}>, a model "
            f"needs vocab_size={number + sentinels} or more"
        )
    if number < chosen.vocab_size:
        print(
            f"--vocab_size={chosen.vocab_size} was not reached: the text has no other "
            "pieces; more text would help"
        )
    unknown = tokenizer.vocabulary.unk_id
    if rare := [c for c in characters if unknown in tokenizer.encode(c)]:
        share = sum(map(characters.get, rare)) / characters.total()
        print(
            f"left out: {len(rare):,} characters beyond --character_coverage="
            f"{chosen.character_coverage}, {share:.4%} of the text"
        )


def _report(counts, tokens, chosen):
    known = set(tokens)
    reserved = ""
    if chosen.num_unused and chosen.learned is WordPiece:
        reserved = f" ({chosen.num_unused} of them [unusedN], --num_unused)"
    print(
        f"{chosen.output_file}: {len(tokens):,} tokens{reserved}, learned from "
        f"{counts.words.total():,} words, {len(counts.words):,} different"
    )
    if len(tokens) < chosen.vocab_size:
        print(
            f"--vocab_size={chosen.vocab_size} was not reached: no other pieces occur "
            f"together --min_frequency={chosen.min_frequency} times; more text would help"
        )
    rare = {
        character: count
        for character, count in counts.characters.items()
        if character not in known
    }
    if rare:
        print(
            f"left out: {len(rare):,} characters seen fewer than "
            f"--min_character_count={chosen.min_character_count} times, "
            f"{sum(rare.values()) / counts.characters.total():.4%} of the text"
        )
    if counts.forgotten:
        print(f"dropped to limit memory: {counts.forgotten:,} rare words")


def _report_measured(paths, tokenizer, chosen):
    held_out = (
        line for line, is_held_out in _lines(paths, chosen, "measuring") if is_held_out
    )
    found = measure(tokenizer, held_out)
    if not found["words"]:
        print("nothing was held out to measure on (see --heldout_share)")
        return
    print(
        f"on {found['words']:,} held-out words: "
        f"{found['unknown'] / found['words']:.3%} are [UNK], "
        f"{found['pieces'] / found['words']:.3f} pieces per word"
    )


if __name__ == "__main__":
    options.run(main, Options)
