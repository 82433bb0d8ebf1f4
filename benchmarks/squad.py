"""Times one thread from a SQuAD file to rows, and from random logits to answers.

python -m benchmarks.squad --predict_file=dev-v1.1.json --vocab_file=vocab/vocab.txt
"""

import dataclasses
import json
import resource
import statistics
import time

import numpy as np

import command_line
import options
from text.tasks import answer_spans
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning import squad_metrics


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    predict_file: str = options.field(help="A file in SQuAD's layout.")
    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    do_lower_case: bool = options.field(True, help="Lowercase the text.")
    max_seq_length: int = options.field(384, help="Maximum number of tokens per row.")
    doc_stride: int = options.field(128, help="Tokens between starts of windows.")
    max_query_length: int = options.field(64, help="Maximum tokens of a question.")
    repeats: int = options.field(3, help="How often to time; medians are printed.")


def main(chosen: Options) -> None:
    lengths = answer_spans.Lengths(
        chosen.max_seq_length, chosen.doc_stride, chosen.max_query_length
    )
    seconds: dict[str, list[float]] = {}

    def timed(name, function, *arguments, **switches):
        started = time.thread_time()
        value = function(*arguments, **switches)
        seconds.setdefault(name, []).append(time.thread_time() - started)
        return value

    vocabulary = Vocabulary.load(chosen.vocab_file)
    for _ in range(chosen.repeats):
        # What was cached last time must not count.
        answer_spans.windows.cache_clear()
        tokenizer = WordPiece(vocabulary, do_lower_case=chosen.do_lower_case)
        data = timed("reading JSON", read, chosen.predict_file)
        documents, questions, windows, references = timed(
            "rows", featurize, data, tokenizer, lengths
        )
        logits = random_logits(windows, chosen.max_seq_length)
        for name, switches in (("", {}), (', with "no answer"', {"with_null": True})):
            answers = timed(
                f"answers{name}",
                answer_spans.best_answers,
                documents,
                questions,
                windows,
                *logits,
                **switches,
            )
        texts = [answer.best.text if answer.best else "" for answer in answers]
        timed(
            "EM, F1, best thresholds",
            squad_metrics.evaluate,
            references,
            [answer.text() for answer in answers],
            version_2=True,
            texts=texts,
            null_odds=[answer.null_odds for answer in answers],
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"{len(documents):,} questions, {len(windows):,} rows; {memory:.0f} MB at most"
    )
    for name, values in seconds.items():
        print(
            f"{name:28}{statistics.median(values):8.2f} s{max(values):8.2f} s slowest"
        )


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def featurize(data, tokenizer, lengths):
    """Makes every row, and keeps what scoring needs."""
    documents, questions, windows, references = [], [], [], []
    paragraphs = (p for article in data["data"] for p in article["paragraphs"])
    for paragraph in paragraphs:
        document = answer_spans.Document(tokenizer, paragraph["context"])
        for item in paragraph["qas"]:
            question = tokenizer.encode(item["question"])
            for row in answer_spans.rows(
                document, question, tokenizer.vocabulary, lengths
            ):
                questions.append(len(documents))
                windows.append(row.window)
            documents.append(document)
            references.append([answer["text"] for answer in item["answers"]])
    return documents, questions, windows, references


def random_logits(windows, max_seq_length):
    """float32 [2, rows, max_seq_length], high around a token of each window, as after
    training, so that most pairs of good starts and ends are allowed."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(2, len(windows), max_seq_length)).astype(np.float32)
    positions = np.arange(max_seq_length)
    for row, window in enumerate(windows):
        peak = generator.integers(window.first, window.stop) + window.offset
        logits[:, row] += 8 * np.exp(-np.abs(positions - peak) / 6)
        logits[:, row, window.stop + window.offset + 1 :] = -1e9
    return logits


if __name__ == "__main__":
    command_line.run(main, Options)
