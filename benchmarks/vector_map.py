"""Draws the vectors of paragraphs in two dimensions, a color for each article.

    python -m benchmarks.vector_map --models=model,vectors --names='raw,trained' \\
        --questions=squad/dev-v1.1.json --picture=map.png

The two dimensions are those in which the vectors of a model differ most (principal
components). A panel for each model; all show the same paragraphs, of the articles that have
the most.
"""

import dataclasses
import json
import os

import numpy as np
from matplotlib.figure import Figure

import bert
import command_line
import options
from errors import UserError
from files import inputs, local


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    models: list[str] = options.field(help="What bert.load takes, one after another.")
    names: list[str] = options.field(help="The titles of their panels.")
    questions: str = options.field(help="A file in SQuAD's layout.")
    picture: str = options.field(help="The .png or .svg to write.")
    num_articles: int = options.field(8, help="How many have a color.", at_least=1)

    def __post_init__(self):
        super().__post_init__()
        if len(self.models) != len(self.names):
            raise UserError("--names: pass one for each of --models")


def read(flags: Options) -> dict[str, list[str]]:
    """Title -> paragraphs of the articles that have the most."""
    path = flags.questions
    content = json.loads(inputs.whole_text(path, inputs.lines(path), None))
    articles = {
        article["title"].replace("_", " "): [
            p["context"] for p in article["paragraphs"]
        ]
        for article in content["data"]
    }
    most = sorted(articles, key=lambda title: -len(articles[title]))
    return {title: articles[title] for title in most[: flags.num_articles]}


def project(vectors: np.ndarray) -> np.ndarray:
    """float [n, 2]: along the first two principal components."""
    centered = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    return centered @ axes[:2].T


def draw(articles: dict[str, list[str]], panels: dict[str, np.ndarray]) -> Figure:
    """A panel for each name and its places, float [paragraphs, 2]."""
    figure = Figure(figsize=(4.5 * len(panels), 4.6), layout="constrained")
    for axis, (name, places) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        begin = 0
        for title, paragraphs in articles.items():
            x, y = places[begin : begin + len(paragraphs)].T
            begin += len(paragraphs)
            axis.scatter(x, y, s=12, alpha=0.8, label=title)
        axis.set(title=name, xticks=[], yticks=[])
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def main(flags: Options) -> None:
    articles = read(flags)
    texts = [text for paragraphs in articles.values() for text in paragraphs]
    panels = {
        name: project(bert.load(model).embed(texts))
        for name, model in zip(flags.names, flags.models, strict=True)
    }
    form = os.path.splitext(flags.picture)[1].removeprefix(".")
    with local.replacing(flags.picture) as file:
        draw(articles, panels).savefig(file, format=form, dpi=120)


if __name__ == "__main__":
    command_line.run(main, Options)
