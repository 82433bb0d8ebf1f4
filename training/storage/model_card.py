"""Writes the card of a model: README.md, as hubs show it."""

import contextlib
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from training.storage.folder import (
    CONFIG,
    RESULTS,
    RESULTS_JSON,
    SEARCH,
    SETTINGS,
    TASK,
)
from files import hub, json_files, sources
from serving import export
from text.graphs.lookup import libraries_of

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
# The same by the form of an export's answers.
_FORMS = {
    "label": _TASKS["ForSequenceClassification"],
    "labels": _TASKS["ForSequenceClassification"],
    "number": ("text-classification", "scores texts"),
    "choice": _TASKS["ForMultipleChoice"],
    "span": _TASKS["ForQuestionAnswering"],
    "tags": _TASKS["ForTokenClassification"],
    "word_tags": _TASKS["ForTokenClassification"],
    "masks": _TASKS["ForMaskedLM"],
    "next": _TASKS["LMHeadModel"],
    "replaced": ("token-classification", "finds replaced tokens"),
    "text": _TASKS["ForConditionalGeneration"],
}
_EXAMPLES = {"text": '["a text"]', "list": '[["several", "texts"]]'}
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


def facts_of(folder: str, weights: int, step: int | None) -> Facts:
    """The facts in the folder of a checkpoint; few, if no run of ours made it.

    Args:
        step: of the model. If known, scores of another step are left out.
    """
    settings = json_files.read_own(os.path.join(folder, SETTINGS))
    task = json_files.read_own(os.path.join(folder, TASK))
    results = json_files.read_own(os.path.join(folder, RESULTS_JSON))
    results = results or _results(os.path.join(folder, RESULTS))
    if step not in (None, results.get("global_step")):
        results = {}
    source = settings.get("init_checkpoint")
    if address := hub.address_of(folder):
        source = str(address)
    elif isinstance(source, str) and not hub.is_address(source):
        source = os.path.basename(source.rstrip("/"))
    flag_values = task.get("flags")
    flag_values = flag_values if isinstance(flag_values, dict) else {}
    return Facts(
        weights,
        source if isinstance(source, str) else None,
        tuple(_data(settings, flag_values)),
        str(flag_values.get("task_name") or task.get("script") or ""),
        {
            name: value
            for name, value in results.items()
            if isinstance(value, int | float) and name not in _NO_SCORES
        },
        dict(_settings(settings, folder)),
    )


def _results(path) -> dict:
    """Those that pre-training writes, "name = value" in each line."""
    results = {}
    if not sources.exists(path):
        return results
    for line in sources.content(path).decode(errors="replace").splitlines():
        name, _, value = line.partition(" = ")
        with contextlib.suppress(ValueError):
            results[name] = float(value)
    return results


def _settings(settings, folder) -> Iterator[tuple[str, object]]:
    """Those of the training that are on, without the sizes, which config.json has."""
    sizes = json_files.read_own(os.path.join(folder, CONFIG))
    for name, value in settings.items():
        is_plain = isinstance(value, str | int | float) and "sha256" not in name
        if is_plain and value and name not in sizes.keys() | _NO_SETTINGS:
            yield name, value
    if best := json_files.read_own(os.path.join(folder, SEARCH)).get("best"):
        yield "best run of a search", best


def _data(settings, flag_values) -> Iterator[str]:
    records = settings.get("input_file")
    if isinstance(records, list):
        for name, number in (item for item in records if len(item) == 2):
            yield f"`{name}`: {number:,} records"
    for name in ("data_dir", "train_file", "dev_file"):
        if flag_values.get(name):
            yield f"`--{name}={os.path.basename(str(flag_values[name]).rstrip('/'))}`"


def text(name: str, hugging_face_config: Mapping, facts: Facts) -> str:
    """The card of a model in Hugging Face's layout.

    Args:
        name: of the model.
        hugging_face_config: its config.json.
    """
    (their_class,) = hugging_face_config["architectures"]
    purpose, what = next(
        (task for ending, task in _TASKS.items() if their_class.endswith(ending)),
        _ENCODER,
    )
    use = [f"from transformers import AutoTokenizer, {their_class}", ""]
    use += [f'tokenizer = AutoTokenizer.from_pretrained("{name}")']
    use += [f'model = {their_class}.from_pretrained("{name}")']
    return _card(
        name,
        {"library_name": "transformers", "pipeline_tag": purpose},
        f"`{their_class}`, a {{size}} that {what}.",
        hugging_face_config["model_type"],
        facts,
        [
            *_code(use),
            "With this project's scripts, pass the folder as `--init_checkpoint`.",
        ],
    )


def of_export(output_dir: str, product: export.Product) -> str:
    """The card of an export, with what its output_dir knows of the model."""
    model = product.model
    weights = sum(math.prod(v.shape) for v in model.weights)
    facts = facts_of(output_dir, weights, product.description.get("global_step"))
    purpose, what = _FORMS[product.form]
    arguments = ", ".join(
        f"{name}=tf.constant({_EXAMPLES[kind]})"
        for name, kind in product.inputs.items()
    )
    use = ["import tensorflow as tf"]
    use += [f"import {name}" for name in libraries_of(product.tokenizer)]
    use += ["", 'model = tf.saved_model.load("text/1")']
    use += [f'model.signatures["serving_default"]({arguments})']
    names = ", ".join(f"`{name}`" for name in product.adapters)
    others = [f"Signatures of other adapters on the same base: {names}.", ""]
    return _card(
        os.path.basename(os.path.abspath(output_dir)),
        {"pipeline_tag": purpose},
        f"A SavedModel of TensorFlow, from raw text to answers: a {{size}} that {what}.",
        product.config.architecture,
        facts,
        [
            *_code(use),
            *(others if names else []),
            "With this project, `predict.py` answers files of texts.",
        ],
    )


def _code(lines) -> list[str]:
    return ["```python", *lines, "```", ""]


def _card(
    name: str,
    head: Mapping,
    summary: str,
    architecture: str,
    facts: Facts,
    use: Sequence[str],
) -> str:
    """A card.

    Args:
        head: begins its YAML.
        summary: its first sentence, with a place for the {size}.
        use: lines that say how to use the model.
    """
    base, purpose = facts.base_model, head["pipeline_tag"]
    head = dict(head)
    if base and hub.is_address(base):
        head["base_model"] = hub.parse(base).name
    head["tags"] = [architecture, "tensorflow", "keras"]
    if facts.scores:
        head["model-index"] = [{"name": name, "results": [_result(purpose, facts)]}]
    lines = ["---", *(f"{key}: {_yaml(value)}" for key, value in head.items())]
    lines += [_LICENSE, "---", "", f"# {name}", ""]
    size = f"{architecture.upper()} of {facts.weights:,} weights"
    lines.append(summary.format(size=size))
    if base:
        lines.append(f"It began as {_shown(base)}.")
    for title, body in (
        ("Data", [f"- {line}" for line in facts.data]),
        ("Scores", _table(facts.scores)),
        ("Training", [f"- `{n}`: {_yaml(v)}" for n, v in facts.settings.items()]),
        ("Use", use),
    ):
        if body:
            lines += ["", f"## {title}", "", *body]
    return "\n".join([*lines, ""])


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
