"""Measures tokens per second of thread time, on any text or on Python's documentation.

python -m benchmarks.tokenization --vocab_file=vocab/vocab.txt [--input_file='*.txt']
"""

import dataclasses
import resource
import statistics
import time

import command_line
import options
from files import inputs
from recipes import documentation
from text.tokenizers.table import TokenizerOptions


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    input_file: list[str] = options.field(
        [],
        help="Text files; by default, the documentation strings of installed packages.",
    )
    do_lower_case: bool = options.field(True, help="Lowercase the text.")
    megabytes: int = options.field(20, help="How much text to read.")
    repeats: int = options.field(5, help="How often to time each; medians are printed.")


def read(chosen: Options) -> list[str]:
    """Lines, as many as `megabytes` allows."""
    if chosen.input_file:
        paths = inputs.expand(chosen.input_file)
        lines = (line for path in paths for line in inputs.lines(path))
    else:
        paths = (path for _, path in documentation.source_files())
        texts = (text for path in paths for text in documentation.strings(path))
        lines = (line for text in texts for line in text.splitlines())
    kept, size = [], 0
    for line in lines:
        kept.append(line)
        size += len(line)
        if size >= chosen.megabytes * 1_000_000:
            break
    return kept


def main(chosen: Options) -> None:
    started = time.thread_time()
    flags = TokenizerOptions(do_lower_case=chosen.do_lower_case)
    vocabulary = flags.load_tokenizer(chosen.vocab_file).vocabulary
    load_seconds = time.thread_time() - started
    lines = read(chosen)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    rows = {"first time": [], "again, cache filled": [], "with offsets": []}
    for _ in range(chosen.repeats):
        tokenizer = flags.load_tokenizer(chosen.vocab_file)
        for row, function in zip(
            rows.values(),
            (tokenizer.encode, tokenizer.encode, tokenizer.encode_with_offsets),
            strict=True,
        ):
            started = time.thread_time()
            for line in lines:
                function(line)
            row.append(time.thread_time() - started)
    count = sum(len(tokenizer.encode(line)) for line in lines)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    size = sum(map(len, lines))
    print(f"{count:,} tokens, {size:,} characters, {len(lines):,} lines, medians of")
    print(f"{chosen.repeats} runs; vocabulary of {len(vocabulary):,} read in", end=" ")
    print(f"{load_seconds * 1000:.0f} ms; caches {(after - before) / 1000:.0f} MB")
    print(f"{'':24}{'M tokens/s':>12}{'slowest':>12}")
    for name, seconds in rows.items():
        rates = [count / second / 1e6 for second in seconds]
        print(f"{name:24}{statistics.median(rates):12.2f}{min(rates):12.2f}")


if __name__ == "__main__":
    command_line.run(main, Options)
