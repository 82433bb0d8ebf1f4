"""Writes the card of a model in Hugging Face's layout: README.md, as hubs show it."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping

from training.storage import run_folder
from text.files import anywhere, hub

# What the end of a class's name says: the task by the hub's name, and in words.
_TASKS = {
    "ForSequenceClassification": ("text-classification", "classifies texts"),
    "ForTokenClassification": ("token-classification", "tags words"),
    "ForQuestionAnswering": ("question-answering", "answers questions about a text"),
    "ForQuestionAnsweringSimple": (
        "question-answering",
        "answers questions about a text",
    ),
    "ForMultipleChoice": ("multiple-choice", "chooses one of several texts"),
    "ForMaskedLM": ("fill-mask", "fills in masked words"),
    "LMHeadModel": ("text-generation", "continues texts"),
    "ForConditionalGeneration": ("text2text-generation", "answers texts with texts"),
}
_ENCODER = "feature-extraction", "gives vectors of texts"
_NO_SCORES = {"global_step", "loss", "eval_loss"}
# What no reader of a card needs, or what the card says elsewhere.
_NO_SETTINGS = {"init_checkpoint", "task", "training_examples"}
_LICENSE = "# license: name one here, such as apache-2.0"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the folder of a run knows of a model, for its card.

    Attributes:
        weights: the number of weights.
        base_model: what it was fine-tuned from, an address or the name of a folder, if
            known; no path, for a card is public.
        data: what it learned from, a line each.
        task: the name of the task that has the scores.
        scores: of the held-out data, by name.
        settings: the settings of the training, by name.
    """

    weights: int
    base_model: str | None = None
    data: tuple[str, ...] = ()
    task: str = ""
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)


def facts_of(folder: str, weights: int) -> Facts:
    """The facts in the folder of a checkpoint; few, if no run of ours made it."""
    settings = _object(os.path.join(folder, run_folder.SETTINGS))
    task = _object(os.path.join(folder, run_folder.TASK))
    results = _object(os.path.join(folder, run_folder.RESULTS_JSON))
    source = settings.get("init_checkpoint")
    if address := hub.address_of(folder):
        source = str(address)
    elif isinstance(source, str) and not hub.is_address(source):
        source = os.path.basename(source.rstrip("/"))
    noted = task.get("flags")
    noted = noted if isinstance(noted, dict) else {}
    return Facts(
        weights,
        source if isinstance(source, str) else None,
        tuple(_data(settings, noted)),
        str(noted.get("task_name") or task.get("script") or ""),
        {
            name: value
            for name, value in results.items()
            if isinstance(value, int | float) and name not in _NO_SCORES
        },
        dict(_settings(settings, folder)),
    )


def _object(path) -> dict:
    found = anywhere.read_json(path)
    return found if isinstance(found, dict) else {}


def _settings(settings, folder) -> Iterator[tuple[str, object]]:
    """Those of the training that are on, without the sizes, which config.json has."""
    sizes = _object(os.path.join(folder, run_folder.CONFIG))
    for name, value in settings.items():
        is_plain = isinstance(value, str | int | float) and "sha256" not in name
        if is_plain and value and name not in sizes.keys() | _NO_SETTINGS:
            yield name, value
    if best := _object(os.path.join(folder, run_folder.SEARCH)).get("best"):
        yield "best run of a search", best


def _data(settings, noted) -> Iterator[str]:
    records = settings.get("input_file")
    if isinstance(records, list):
        for name, number in (item for item in records if len(item) == 2):
            yield f"`{name}`: {number:,} records"
    for name in ("data_dir", "train_file", "dev_file"):
        if noted.get(name):
            yield f"`--{name}={os.path.basename(str(noted[name]).rstrip('/'))}`"


def text(name: str, said: Mapping, facts: Facts) -> str:
    """The card.

    Args:
        name: of the model.
        said: its config.json.
    """
    (their_class,) = said["architectures"]
    purpose, what = next(
        (task for ending, task in _TASKS.items() if their_class.endswith(ending)),
        _ENCODER,
    )
    base = facts.base_model
    head = {"library_name": "transformers", "pipeline_tag": purpose}
    if base and hub.is_address(base):
        head["base_model"] = hub.parse(base).name
    head["tags"] = [said["model_type"], "tensorflow", "keras"]
    if facts.scores:
        head["model-index"] = [{"name": name, "results": [_result(purpose, facts)]}]
    lines = ["---", *(f"{key}: {_yaml(value)}" for key, value in head.items())]
    lines += [_LICENSE, "---", "", f"# {name}", ""]
    sizes = f"{said['model_type'].upper()} of {facts.weights:,} weights"
    lines.append(f"`{their_class}`, a {sizes} that {what}.")
    if base:
        lines.append(f"It began as {_shown(base)}.")
    for title, body in (
        ("Data", [f"- {line}" for line in facts.data]),
        ("Scores", _table(facts.scores)),
        ("Training", [f"- `{n}`: {_yaml(v)}" for n, v in facts.settings.items()]),
    ):
        if body:
            lines += ["", f"## {title}", "", *body]
    lines += ["", "## Use", "", "```python"]
    lines += [f"from transformers import AutoTokenizer, {their_class}", ""]
    lines += [f'tokenizer = AutoTokenizer.from_pretrained("{name}")']
    lines += [f'model = {their_class}.from_pretrained("{name}")', "```", ""]
    lines += [
        "With this project's scripts, pass the folder as `--init_checkpoint`.",
        "",
    ]
    return "\n".join(lines)


def _shown(base):
    if hub.is_address(base):
        name = hub.parse(base).name
        return f"[{name}](https://huggingface.co/{name})"
    return f"`{base}`"


def _result(purpose, facts):
    dataset = facts.task or "held-out data"
    kind = re.sub(r"[^a-z0-9]+", "-", dataset.lower())
    return {
        "task": {"type": purpose},
        "dataset": {"name": dataset, "type": kind},
        "metrics": [
            {"type": name.removeprefix("eval_"), "value": value}
            for name, value in facts.scores.items()
        ],
    }


def _table(scores) -> list[str]:
    rows = [f"| {name} | {value:.6g} |" for name, value in scores.items()]
    return ["| score | held-out data |", "|---|---|", *rows] if rows else []


def _yaml(value) -> str:
    return json.dumps(value, ensure_ascii=False)  # which is YAML, too
