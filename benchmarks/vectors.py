"""Scores the sentence vectors of an encoder before and after training.

    python -m benchmarks.vectors --init_checkpoint=model --sentences=sentences.txt \\
        --scored_pairs=glue/STS-B/train.tsv,glue/STS-B/dev.tsv \\
        --questions=squad/train-v1.1.json,squad/dev-v1.1.json \\
        --output_file=vectors.jsonl --picture=vectors.png

Scored pairs get the rank correlation of cosines and scores: of the pooled vectors of the
encoder as it is ("raw"), after unsupervised SimCSE on the sentences, and after training on
the pairs themselves. Questions are searched among the paragraphs of their set, raw and
after training on questions; one file alone is divided by articles, of which every fifth is
held out. Each result is appended to the file, and the same command does what is missing
there. The picture has the recall by the number of paragraphs, of all questions in the file.
"""

import dataclasses
import io
import json
import os
import tempfile

import numpy as np
from matplotlib.figure import Figure

import command_line
import options
import run_retrieval
from benchmarks import results, turns
from errors import UserError
from files import inputs, json_files, local
from text.tasks import text_groups
from training.finetuning import ranking_metrics, retrieval

_RAW = "raw"
_PAIRS, _QUESTIONS = "scored pairs", "questions"
_HELD_OUT = 5  # of a file alone, each fifth article
_SHOWN = {
    _PAIRS: ("spearman", "pearson"),
    _QUESTIONS: ("recall@1", "recall@10", "mrr@10"),
}


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    init_checkpoint: str = options.field(help="A pre-trained encoder with its files.")
    output_file: str = options.field(help="JSON lines of all results.")
    picture: str | None = options.field(
        None, help="Draw the recall into this .png or .svg."
    )
    name: str = options.field("English", help="What to call these sets.")
    sentences: str | None = options.field(None, help="A text per line, for SimCSE.")
    scored_pairs: list[str] = options.field([], help="Training and dev set.")
    score_range: list[float] = options.field(
        [0.0, 5.0], help="The lowest and highest score."
    )
    questions: list[str] = options.field(
        [], help="Training and dev set in SQuAD's layout, or one to divide."
    )
    seeds: list[int] = options.field([1, 2, 3], help="One run of each per seed.")
    pooling: str = options.field("mean", help="As run_retrieval.py takes it.")
    max_seq_length: int = options.field(64, help="Tokens of a sentence.")
    max_paragraph_length: int = options.field(256, help="Of a paragraph, or question.")
    learning_rates: list[float] = options.field(
        [3e-5, 2e-5, 2e-5], help="Of SimCSE, of scored pairs, of questions."
    )
    epochs: list[float] = options.field([1.0, 4.0, 1.0], help="Of the same.")
    batch_sizes: list[int] = options.field([64, 32, 128], help="Of the same.")
    gradient_accumulation_steps: int = options.field(1, help="Of questions.")

    def __post_init__(self):
        super().__post_init__()
        if len(self.scored_pairs) not in (0, 2):
            raise UserError("--scored_pairs: pass two files, training and dev set")

    @property
    def ways(self) -> dict[tuple[str, str], dict]:
        """Set and name of each model -> the flags of run_retrieval.py."""
        texts, pairs, questions = (
            {
                "learning_rate": [rate],
                "num_train_epochs": [epochs],
                "train_batch_size": [size],
                "do_train": True,
            }
            for rate, epochs, size in zip(
                self.learning_rates, self.epochs, self.batch_sizes, strict=True
            )
        )
        ways = {}
        if self.scored_pairs:
            ways[_PAIRS, _RAW] = {}
            if self.sentences:
                texts["train_file"] = os.path.abspath(self.sentences)
                ways[_PAIRS, "SimCSE"] = {"train_kind": "texts", **texts}
            ways[_PAIRS, "trained"] = pairs
        if self.questions:
            questions["gradient_accumulation_steps"] = self.gradient_accumulation_steps
            ways[_QUESTIONS, _RAW] = {}
            ways[_QUESTIONS, "trained"] = questions
        model = {"init_checkpoint": self.init_checkpoint, "pooling": self.pooling}
        common = {
            _PAIRS: {
                "train_kind": "scored_pairs",
                "max_seq_length": self.max_seq_length,
            },
            _QUESTIONS: {
                "train_kind": "squad",
                "max_seq_length": self.max_paragraph_length,
            },
        }
        return {key: model | common[key[0]] | way for key, way in ways.items()}


def divide(path: str, folder: str) -> list[str]:
    """Writes two files of SQuAD's layout, with other articles; returns their paths."""
    content = json.loads(inputs.whole_text(path, inputs.lines(path), None))
    articles, paths = content["data"], []
    for name in ("train", "dev"):
        some = [
            article
            for number, article in enumerate(articles)
            if (number % _HELD_OUT == 0) == (name == "dev")
        ]
        paths.append(os.path.join(folder, f"{name}.json"))
        local.write_json(paths[-1], content | {"data": some})
    return paths


def score_pairs(flags: Options, seed: int, way: dict) -> dict[str, float]:
    """Scores of the dev set of scored pairs."""
    train, dev = map(os.path.abspath, flags.scored_pairs)
    given = {"train_file": train, "dev_file": dev, "dev_kind": "scored_pairs"}
    given |= {"score_range": flags.score_range, "do_eval": True}
    with tempfile.TemporaryDirectory() as folder:
        _run(seed, folder, given | way)
        scores = json_files.read(os.path.join(folder, "eval_results.json"))
    return {name: scores[f"eval_{name}"] for name in _SHOWN[_PAIRS]}


def score_questions(flags: Options, seed: int, way: dict) -> dict:
    """Scores of the search for the paragraphs of questions, and the recall by k."""
    with tempfile.TemporaryDirectory() as folder:
        files = flags.questions
        files = divide(files[0], folder) if len(files) == 1 else files
        train, dev = map(os.path.abspath, files)
        given = {"train_file": train, "test_file": dev, "do_predict": True}
        output = os.path.join(folder, "output")
        _run(seed, output, given | way)
        columns = text_groups.KINDS["squad"].columns
        judged = text_groups.judged_texts(text_groups.read(dev, "squad", columns))
        relevant = retrieval.collection_of(judged).relevant
        run = read_run(os.path.join(output, "run.trec"))
    scores = ranking_metrics.score_run(relevant, run)
    found = np.zeros(ranking_metrics.DEPTH)
    for query, passages in relevant.items():
        for place, passage in enumerate(ranking_metrics.rank(run[query])):
            found[place] += (passage in passages) / len(passages) / len(relevant)
    recall = np.cumsum(found).round(6).tolist()
    return {name: scores[name] for name in _SHOWN[_QUESTIONS]} | {"recall": recall}


def read_run(path: str) -> dict[str, dict[str, float]]:
    """Query -> passage -> score, of the lines of a TREC run."""
    run = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            query, _, passage, _, score, *_ = line.split()
            run.setdefault(query, {})[passage] = float(score)
    return run


def _run(seed, output_dir, given):
    own = {"data_dir": ".", "eval_batch_size": 64, "predict_batch_size": 64}
    results.run(run_retrieval, output_dir=output_dir, seed=seed, **own, **given)


def draw(lines: list[dict]) -> Figure:
    """A curve for each set of questions and way, the mean over its seeds."""
    curves: dict[str, list] = {}
    for line in lines:
        if "recall" in line:
            label = f"{line['name']}, {line['way']}"
            curves.setdefault(label, []).append(line["recall"])
    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for label, recalls in curves.items():
        recall = 100 * np.mean(recalls, axis=0)
        axis.plot(np.arange(1, len(recall) + 1), recall, label=label)
    axis.set(xscale="log", xlabel="paragraphs, the best first", ylim=(0, 100))
    axis.set_xticks([1, 2, 5, 10, 20, 50, 100], [1, 2, 5, 10, 20, 50, 100])
    axis.set_ylabel("the right one is among them, %")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


def main(flags: Options) -> None:
    found = results.Results(flags.output_file)
    score = {_PAIRS: score_pairs, _QUESTIONS: score_questions}
    files = {_PAIRS: flags.scored_pairs, _QUESTIONS: flags.questions}
    keys = [
        {"set": set, "way": way, "files": files[set], "name": flags.name, "flags": own}
        for (set, way), own in flags.ways.items()
    ]

    def measure(seed, **key):
        return score[key["set"]](flags, seed, key["flags"])

    for seed in flags.seeds:
        for key in keys:
            if key["way"] != _RAW or seed == flags.seeds[0]:  # nothing in it is random
                found.measure(measure, seed=seed, **key)
    print("| | score | mean ± deviation |", "|---|---|---|", sep="\n")
    for key in keys:
        for name in _SHOWN[key["set"]]:
            scores = [100 * line[name] for line in found.of(**key)]
            shown = turns.mean_and_deviation(scores)
            print(f"| {key['set']}, {key['way']} | {name} | {shown} |")
    if flags.picture:
        picture = io.BytesIO()
        form = os.path.splitext(flags.picture)[1].removeprefix(".")
        draw(found.lines).savefig(picture, format=form, dpi=120)
        with local.replacing(flags.picture) as file:
            file.write(picture.getvalue())


if __name__ == "__main__":
    command_line.run(main, Options)
