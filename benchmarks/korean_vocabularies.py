"""Compares Korean vocabularies: [UNK], pieces per word, and accuracy on NSMC.

python -m benchmarks.korean_vocabularies --input_file=nsmc.txt,korquad.txt \\
    --data_dir=nsmc --squad_file=KorQuAD_v1.0_dev.json --work_dir=compared

A vocabulary is measured on NSMC's test set, by a small encoder of random weights that is
fine-tuned with several seeds, and by how many of KorQuAD's answers begin and end with a
piece, so that a model can give them exactly.
"""

import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys

import build_vocab
import command_line
import options
from files import tables
from text.tasks import answer_spans, korean, squad
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer

_NSMC = korean.TASKS["nsmc"].dev["dev"]


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    input_file: list[str] = options.field(help="Text to learn the vocabularies from.")
    data_dir: str = options.field(help="Folder of NSMC's two files.")
    squad_file: str = options.field(help="KorQuAD's dev set.")
    work_dir: str = options.field(help="Folder for vocabularies and runs.")
    vocabularies: list[str] = options.field(
        [
            "words:8000",
            "words:16000",
            "words:32000",
            "morphemes:8000",
            "morphemes:16000",
            "morphemes:32000",
        ],
        help="What pieces do not cross, and the number of tokens.",
    )
    num_trials: int = options.field(3, help="Number of seeds.")
    num_train_epochs: float = options.field(1.0, help="Passes over the training set.")


def _run(script, **flags):
    line = [sys.executable, f"{script}.py", *options.words(**flags)]
    subprocess.run(line, check=True, stdout=sys.stderr)


def learn(chosen: Options, boundaries: str, size: str) -> str:
    """Learns a vocabulary, unless it is there; returns its path."""
    path = os.path.join(chosen.work_dir, f"{boundaries}_{size}", "vocab.txt")
    if not os.path.exists(path):
        flags = {"piece_boundaries": boundaries, "vocab_size": size, "num_unused": 0}
        texts = ",".join(chosen.input_file)
        _run(
            "build_vocab", input_file=texts, output_file=path, heldout_share=0, **flags
        )
    return path


def exact_answers(chosen: Options, tokenizer: Tokenizer) -> float:
    """The share of the answers that are whole pieces, in percent."""
    document = functools.cache(functools.partial(answer_spans.Document, tokenizer))
    exact = []
    for _, example in squad.read(chosen.squad_file):
        text = document(example.context)
        place = squad.first_answer(text, tokenizer, example)
        exact.append(
            place is not None
            and text.text[text.starts[place[0]] : text.ends[place[1]]]
            in example.references
        )
    return 100 * statistics.mean(exact)


def accuracies(chosen: Options, vocab_file: str) -> list[float]:
    """Fine-tunes with each seed; the accuracy of each run in percent."""
    folder = os.path.dirname(vocab_file)
    tokenizer = TokenizerOptions().load_tokenizer(vocab_file)
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 256}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 64}
    config = os.path.join(folder, "config.json")
    with open(config, "w") as file:
        json.dump(sizes | {"vocab_size": len(tokenizer.vocabulary)}, file)
    output = os.path.join(folder, "nsmc")
    _run(
        "run_classifier",
        task_name="nsmc",
        data_dir=chosen.data_dir,
        vocab_file=vocab_file,
        bert_config_file=config,
        output_dir=output,
        do_train=True,
        do_eval=True,
        max_seq_length=64,
        pooling="mean",  # from random weights, [CLS] alone may learn nothing for an epoch
        learning_rate=1e-3,
        num_train_epochs=chosen.num_train_epochs,
        num_trials=chosen.num_trials,
    )
    with open(os.path.join(output, "search.json")) as file:
        return [100 * run["score"] for run in json.load(file)["runs"]]


def main(chosen: Options) -> None:
    """Prints the table, a row as soon as it is known."""
    print(
        "| pieces within | tokens | [UNK] | pieces per word | whole answers | accuracy |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for boundaries, size in (item.split(":") for item in chosen.vocabularies):
        vocab_file = learn(chosen, boundaries, size)
        tokenizer = TokenizerOptions().load_tokenizer(vocab_file)
        continues = tokenizer.vocabulary.is_continuation.tolist()
        path = os.path.join(chosen.data_dir, _NSMC.file)
        texts = (row[_NSMC.text_a] for _, row in tables.read(path))
        counts = build_vocab.measure(tokenizer, continues, texts)
        scores = accuracies(chosen, vocab_file)
        print(
            f"| {boundaries} | {len(continues):,} "
            f"| {counts['unknown'] / counts['words']:.2%} "
            f"| {counts['pieces'] / counts['words']:.3f} "
            f"| {exact_answers(chosen, tokenizer):.1f} % "
            f"| {statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    command_line.run(main, Options)
