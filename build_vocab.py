"""Learns a vocabulary from text, split into words exactly as the tokenizer does.

    python build_vocab.py --input_file='corpus/*.txt' --output_file=vocab/vocab.txt
    python build_vocab.py --input_file='corpus/*.txt' --output_file=bpe/vocab.json
    python build_vocab.py --input_file='corpus/*.txt' --output_file=albert/spiece.model
    python build_vocab.py --input_file='corpus/*.txt' --output_file=gpt/encoder_bpe.json

vocab.txt is a WordPiece vocabulary for BERT; vocab.json, with merges.txt next to it, is
byte-level BPE for RoBERTa; spiece.model is a SentencePiece model for ALBERT
or, with --special_tokens, XLNet, KoBERT or T5;
encoder_bpe.json, with vocab.bpe next to it, is BPE for GPT-1.

It streams the text, so there is no limit on its size: 100 MB take less than a minute and
200 MB of memory. SentencePiece learns from a random sample, see --input_sentence_size. The
same text and flags produce the same file.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import pkgutil
import sys
import tempfile
from collections.abc import Iterator

import command_line
import extensions
import options
from errors import UserError
from files import inputs, local, protected, sources
from text import progress
from text.corpus import formats, sample
from text.corpus.formats import FORMATS, TextOptions
from text.generation import work
from text.tokenizers import recorded_settings
from text.tokenizers.kind import Kind
from text.tokenizers.learning.learner import Learner
from text.tokenizers.sentencepiece import FAMILIES
from text.tokenizers.table import TOKENIZERS, OpenVocabulary, TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer

_LEARNED = {name: kind for name, kind in TOKENIZERS.items() if kind.learner}
# In the releases, of SentencePiece.
_SIZES = ", ".join(f"{f.symbols.vocab_size} ({name})" for name, f in FAMILIES.items())
_LARGEST = 10_000_000  # tokens; far more than anyone needs, and still fits in memory
_SAMPLED = 1000  # lines of each part of the text
_KOREAN_OR_JAPANESE = 0.1  # share of its lines; English text has far fewer


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions, TextOptions):
    kind: str | None = options.field(
        None,
        choices=tuple(_LEARNED),
        help="What to learn; by default, what the name of --output_file says. wordpiece: "
        "NAME.txt, one token per line. sentencepiece: NAME.model."
        + extensions.help_of("kind"),
    )
    input_file: list[str] = options.field(
        help=f"Text files, UTF-8, {inputs.PACKED}: comma-separated names and globs."
    )
    output_file: str = options.field(
        help="The vocabulary to write, such as vocab.txt or spiece.model; its name decides "
        "the --kind."
    )
    vocab_size: int | None = options.field(
        None,
        help="Number of tokens to write, of all kinds; by default as in the releases, "
        f"such as 30522, or with SentencePiece {_SIZES}."
        + extensions.help_of("vocab_size"),
    )
    special_tokens: str = options.field(
        next(iter(FAMILIES)),
        choices=tuple(FAMILIES),
        help="SentencePiece: whose special tokens and marks the model has. Scripts know "
        "the family of a model by them." + extensions.help_of("special_tokens"),
    )
    num_unused: int | None = options.field(
        None,
        help="Number of [unusedN] tokens to reserve for your own words; by default 994, "
        "as in the release, and fewer if --vocab_size is below 30522, in proportion. Other "
        "kinds have none.",
        at_least=0,
    )
    piece_boundaries: str = options.field(
        "words",
        choices=("words", "morphemes"),
        help="WordPiece: what pieces do not cross. morphemes: those of Korean words, as in "
        "KLUE's vocabulary, found by kiwipiepy (requirements/korean.txt), at about 20,000 "
        "characters a second and core. Only learning needs it: later, text is split by the "
        "vocabulary alone.",
    )
    min_character_count: int = options.field(
        5,
        help="Leave out non-ASCII characters that occur less often than this; words that "
        "contain them become [UNK]. Byte-level BPE has a token for every byte instead, and "
        "SentencePiece --character_coverage.",
        at_least=0,
    )
    min_frequency: int = options.field(
        2,
        help="Join two pieces only if they occur together at least this often. Not for "
        "SentencePiece.",
        at_least=0,
    )
    character_coverage: float = options.field(
        0.99995,
        help="SentencePiece: the share of the characters that get a piece; the rarest "
        "become <unk>.",
        at_least=0.9,
        at_most=1,
    )
    input_sentence_size: int = options.field(
        500_000,
        help="SentencePiece: learn from this many lines, drawn at random. Memory grows "
        "with it, to about 1 GB for half a million sentences.",
        above=100,
    )
    num_workers: int = options.field(
        0,
        help="Number of processes that read a dump; 0 uses one per core. The vocabulary "
        "does not depend on it.",
        only_for={"input_format": "wikipedia"},
        at_least=0,
        at_most=4096,
    )
    heldout_share: float = options.field(
        0.01, help="Share of the lines to evaluate on instead of learning from them."
    )

    def __post_init__(self):
        super().__post_init__()
        sources.refuse_remote(self.output_file)
        if not self.output_file or os.path.isdir(self.output_file):
            raise UserError(f"--output_file={self.output_file}: must name a file")
        self._check_kind()
        for name, value in self.learner.defaults().items():
            # How a frozen object gets a default that depends on another field.
            object.__setattr__(self, name, value)
        least, parts = self.learner.fixed_tokens()
        self.learner.check()
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
        place = f"--output_file={self.output_file}"
        if self.kind and _LEARNED[self.kind] is not self.vocabulary_kind:
            names = pkgutil.resolve_name(_LEARNED[self.kind].learner).file_names
            raise UserError(f"{place}: with --kind={self.kind}, its name must {names}")
        is_json = self.vocabulary_kind.vocabulary_file.endswith(".json")
        if self.output_file.endswith(".json") and not is_json:
            raise UserError(
                f"{place}: no kind of vocabulary here is written as JSON; use another name"
                f"{extensions.hint()}"
            )
        if not self.vocabulary_kind.learner:
            raise UserError(
                f"{place}: is of a kind that is not learned; use another name"
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in self.learner.unused_flags:
            unset = (True,) if name == "split_cjk" else ()  # the only way there is
            if getattr(self, name) not in (defaults[name], *unset):
                raise UserError(
                    f"--{name} does not apply to {self.output_file}, which is "
                    f"{self.vocabulary_kind.tokenizer.__name__}; leave it out"
                )

    @functools.cached_property
    def vocabulary_kind(self) -> Kind:
        """The kind of vocabulary; that of --kind, if kinds share the name of the file."""
        named = OpenVocabulary.open(self.output_file).kind
        chosen = _LEARNED.get(self.kind, named)
        name = os.path.basename(self.output_file)
        return chosen if name == chosen.vocabulary_file else named

    @functools.cached_property
    def learner(self) -> Learner:
        return pkgutil.resolve_name(self.vocabulary_kind.learner)(self)


def measure(
    tokenizer: Tokenizer, continues: list[bool], lines: Iterator[str]
) -> dict[str, int]:
    """Counts `words`, `pieces` and `unknown` words of some text.

    Args:
        continues: see `Learner.continues`.
    """
    counts = {"words": 0, "pieces": 0, "unknown": 0}
    for line in lines:
        ids = tokenizer.encode(f" {line}")
        counts["words"] += len(ids) - sum(map(continues.__getitem__, ids))
        counts["pieces"] += len(ids)
        counts["unknown"] += ids.count(tokenizer.vocabulary.unk_id)
    return counts


def _reading(chosen):
    """How to read the text: sentences need not be found where it takes time."""
    fields = dataclasses.fields(TextOptions)
    values = {field.name: getattr(chosen, field.name) for field in fields}
    name = FORMATS[chosen.input_format].words_format or chosen.input_format
    return TextOptions(**values | {"input_format": name})


def _pieces(paths, reading):
    files = ((path, sources.status(path)) for path in paths)
    return formats.pieces(files, reading.input_format, sum(map(sources.size, paths)))


def _sampled_lines(paths, reading):
    """Yields lines of every part of the text."""
    if FORMATS[reading.input_format].reads_slowly:
        parts = sample.take(paths, reading).parts
    else:
        parts = _pieces(paths, reading)
    for span in itertools.chain.from_iterable(parts):
        yield from itertools.islice(formats.read(span, reading), _SAMPLED)


def _keeping_letters(paths, chosen):
    """The flags; Korean or Japanese text decides on accents if they leave that open."""
    if chosen.strip_accents is not None:
        return chosen
    lines = filter(None, _sampled_lines(paths, _reading(chosen)))
    counts = collections.Counter(map(chosen.learner.takes_apart, lines))
    if counts[True] <= _KOREAN_OR_JAPANESE * counts.total():
        return chosen
    print(
        f"{counts[True] / counts.total():.0%} of the lines are Korean or Japanese, so "
        "accents are kept (--strip_accents=false), because removing them takes Hangul and "
        "kana apart; pass --strip_accents=true to do as the 2018 release does",
        file=sys.stderr,
    )
    return dataclasses.replace(chosen, strip_accents=False)


def _lines(paths, chosen, counts):
    """Yields the lines of the text, and shows progress.

    `counts` receives what the format leaves out.
    """
    reading, size = _reading(chosen), sum(map(sources.size, paths))
    pieces = _pieces(paths, reading)
    with progress.Progress(chosen.learner.activity, size, "MB", scale=1e6) as shown:
        if not FORMATS[reading.input_format].reads_slowly:
            for span in itertools.chain.from_iterable(pieces):
                sentences = formats.read(span, reading, counts)
                yield from (line for line in sentences if line is not None)
                shown.advance(span.size)
            return
        sizes = collections.deque()  # of the pieces that are being read

        def tasks():
            for piece in pieces:
                sizes.append(sum(span.size for span in piece))
                yield piece, reading

        with work.Workers(chosen.num_workers or os.cpu_count() or 1) as workers:
            for lines, left_out in workers.results(formats.read_together, tasks()):
                counts.update(left_out)
                yield from lines
                shown.advance(sizes.popleft())


class _HeldOut(contextlib.ExitStack):
    """The lines to evaluate on, in a temporary file in the folder of the output.

    Use it in a `with` block, after which they are gone.
    """

    def __init__(self, chosen: Options):
        super().__init__()
        self._every = round(1 / chosen.heldout_share) if chosen.heldout_share else 0
        file = tempfile.TemporaryFile(
            "w+",
            encoding="utf-8",
            errors="surrogatepass",
            newline="\n",
            dir=os.path.dirname(chosen.output_file) or ".",
        )
        self._file = self.enter_context(file)

    def without(self, lines: Iterator[str]) -> Iterator[str]:
        """Yields the others, and keeps those that are held out."""
        for number, line in enumerate(lines, start=1):
            if self._every and number % self._every == 0:
                self._file.write(f"{line}\n")
            else:
                yield line

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        return (line.removesuffix("\n") for line in self._file)


def main(chosen: Options) -> None:
    paths = formats.expand(chosen.input_file, chosen.input_format)
    chosen = _keeping_letters(paths, chosen)
    learner = chosen.learner
    protected.refuse(list(learner.paths), paths, replaces_vocabulary=True)
    recorded_settings.check_place(chosen.output_file)
    os.makedirs(os.path.dirname(chosen.output_file) or ".", exist_ok=True)
    with _HeldOut(chosen) as held_out:
        _learn(paths, held_out, chosen)


def _learn(paths, held_out, chosen):
    learner, counts = chosen.learner, collections.Counter()
    # Opened first: an hour's work should not end at a folder that is not writable.
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(local.replacing(path)) for path in learner.paths]
        lines = held_out.without(_lines(paths, chosen, counts))
        source = f"{len(paths)} file(s), such as {paths[0]}"
        for file, content in zip(files, learner.learn(lines, source), strict=True):
            file.write(content)
    # With these flags, whatever an earlier vocabulary of this name was learned with.
    file = OpenVocabulary.open(chosen.output_file).file
    tokenizer = chosen.vocabulary_kind.load(file, chosen)
    recorded_settings.write(chosen.output_file, chosen.vocabulary_kind, tokenizer)
    for line in (
        *FORMATS[chosen.input_format].report(counts),
        *learner.report(tokenizer),
    ):
        print(line)
    _report_measured(held_out, tokenizer, chosen)


def _report_measured(held_out, tokenizer, chosen):
    continues = chosen.learner.continues(tokenizer)
    counts = measure(tokenizer, continues, iter(held_out))
    if not counts["words"]:
        print("nothing was held out to measure on (see --heldout_share)")
        return
    print(
        f"on {counts['words']:,} held-out words: "
        f"{counts['unknown'] / counts['words']:.3%} are [UNK], "
        f"{counts['pieces'] / counts['words']:.3f} pieces per word"
    )


if __name__ == "__main__":
    command_line.run(main, Options)
