"""Writes the card of a model: README.md, as hubs show it."""

import contextlib
import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Mapping

from training.storage.folder import (
    RESULTS,
    RESULTS_JSON,
    SEARCH,
    SETTINGS,
    TASK,
    Folder,
)
from files import hub, sources
from modeling.architectures.config import EncoderConfig
from serving import export, forms
from text.graphs.lookup import libraries_of

# The form of answers of Hugging Face's classes, by the end of their names.
_FORMS = {
    "ForSequenceClassification": "label",
    "ForTokenClassification": "word_tags",
    "ForQuestionAnswering": "span",
    "ForQuestionAnsweringSimple": "span",
    "ForMultipleChoice": "choice",
    "ForMaskedLM": "masks",
    "LMHeadModel": "next",
    "ForConditionalGeneration": "text",
}
_CARD = """\
---
{head}
# license: name one here, such as apache-2.0
---

# {name}

{summary}
{sections}"""
_SECTION = "\n## {title}\n\n{body}\n"
_OF_HUGGING_FACE = """\
```python
from transformers import AutoTokenizer, {their_class}

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {their_class}.from_pretrained("{name}")
```

With this project's scripts, pass the folder as `--init_checkpoint`."""
_OF_SENTENCE_TRANSFORMERS = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["a text", "another one"])
```

With this project's scripts, pass the folder as `--init_checkpoint`."""
_OF_EXPORT = """\
```python
{imports}

model = tf.saved_model.load("text/1")
model.signatures["serving_default"]({arguments})
```

With this project, `predict.py` answers files of texts."""
_EXAMPLES = {"text": '["a text"]', "list": '[["several", "texts"]]'}
_NO_SCORES = {"global_step", "loss", "eval_loss"}
# What no reader of a card needs, or what the card says elsewhere.
_NO_SETTINGS = {"init_checkpoint", "task", "training_examples"}


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the folder of a run knows of a model, for its card.

    Attributes:
        weights: the number of weights.
        base_model: what it was fine-tuned from, an address or the name of a folder, if
            known; no path, for a card is public.
        data: what it learned from, a line each.
        task: the name of the task or data set that has the scores.
        scores: of an evaluation, by name.
        settings: the settings of the training, by name.
    """

    weights: int
    base_model: str | None = None
    data: tuple[str, ...] = ()
    task: str = ""
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)


def facts_of(
    folder: Folder, config: EncoderConfig, weights: int, step: int | None
) -> Facts:
    """The facts in the folder of a checkpoint; few, if no run of ours made it.

    Args:
        config: that of the model.
        step: of the model. If known, scores of another step are left out.
    """
    settings, task = folder.read(SETTINGS), folder.read(TASK)
    results = folder.read(RESULTS_JSON) or _results(folder)
    if step not in (None, results.get("global_step")):
        results = {}
    source = settings.get("init_checkpoint")
    if address := hub.address_of(folder.path):
        source = str(address)
    elif isinstance(source, str) and not hub.is_address(source):
        source = os.path.basename(source.rstrip("/"))
    flag_values = task.get("flags")
    flag_values = flag_values if isinstance(flag_values, dict) else {}
    return Facts(
        weights,
        source if isinstance(source, str) else None,
        tuple(_data(settings, flag_values)),
        _data_set(flag_values) or str(task.get("script") or ""),
        {
            name: value
            for name, value in results.items()
            if isinstance(value, int | float) and name not in _NO_SCORES
        },
        dict(_settings(settings, folder, config)),
    )


def _results(folder) -> dict:
    """Those that pre-training writes, "name = value" in each line."""
    results = {}
    if RESULTS not in folder.names:
        return results
    content = sources.content(folder.file(RESULTS))
    for line in content.decode(errors="replace").splitlines():
        name, _, value = line.partition(" = ")
        with contextlib.suppress(ValueError):
            results[name] = float(value)
    return results


def _settings(settings, folder, config) -> Iterator[tuple[str, object]]:
    """Those of the training that are on, without the sizes, which config.json has."""
    sizes = dataclasses.asdict(config)
    for name, value in settings.items():
        is_plain = isinstance(value, str | int | float) and "sha256" not in name
        if is_plain and value and name not in sizes.keys() | _NO_SETTINGS:
            yield name, value
    if best := folder.read(SEARCH).get("best"):
        yield "best run of a search", best


def _data_set(flag_values) -> str:
    """What its scores are of: a known task, or the name of the folder or file."""
    names = map(flag_values.get, ("task_name", "data_dir", "predict_file"))
    return os.path.basename(str(next(filter(None, names), "")).rstrip("/"))


def _data(settings, flag_values) -> Iterator[str]:
    records = settings.get("input_file")
    if isinstance(records, list):
        for name, number in (item for item in records if len(item) == 2):
            yield f"`{name}`: {number:,} records"
    for name in ("data_dir", "train_file", "dev_file"):
        if flag_values.get(name):
            yield f"`--{name}={os.path.basename(str(flag_values[name]).rstrip('/'))}`"


def text(
    name: str,
    hugging_face_config: Mapping,
    facts: Facts,
    of_vectors: bool = False,
    is_trained: bool = True,
) -> str:
    """The card of a model in Hugging Face's layout.

    Args:
        name: of the model.
        hugging_face_config: its config.json.
        of_vectors: whether it has the modules of sentence-transformers.
        is_trained: whether it was trained for the vectors that these give.
    """
    (their_class,) = hugging_face_config["architectures"]
    task, purpose = "feature-extraction", "gives vectors of texts"
    for ending, form in _FORMS.items():
        if their_class.endswith(ending) and form in forms.FORMS:
            task, purpose = forms.FORMS[form].task, forms.FORMS[form].purpose
    library, use = "transformers", _OF_HUGGING_FACE
    if of_vectors:
        library, use = "sentence-transformers", _OF_SENTENCE_TRANSFORMERS
        task = "sentence-similarity" if is_trained else "feature-extraction"
        if not is_trained:
            purpose += ", the means of its tokens' vectors; it was not trained for them"
    return _card(
        name,
        {"library_name": library, "pipeline_tag": task},
        f"`{their_class}`, a {{size}} that {purpose}.",
        hugging_face_config["model_type"],
        facts,
        use.format(their_class=their_class, name=name),
    )


def of_export(output_dir: str, product: export.Product) -> str:
    """The card of an export, with what its output_dir knows of the model."""
    weights = sum(math.prod(v.shape) for v in product.model.weights)
    form = forms.FORMS[product.form]
    arguments = ", ".join(
        f"{name}=tf.constant({_EXAMPLES[kind]})"
        for name, kind in product.inputs.items()
    )
    libraries = ["tensorflow as tf", *libraries_of(product.tokenizer)]
    imports = "\n".join(f"import {library}" for library in libraries)
    return _card(
        os.path.basename(os.path.abspath(output_dir)),
        {"pipeline_tag": form.task},
        f"A SavedModel of TensorFlow, from raw text to answers: a {{size}} that "
        f"{form.purpose}.",
        product.config.architecture,
        facts_of(
            Folder.open(output_dir),
            product.config,
            weights,
            product.description.get("global_step"),
        ),
        _OF_EXPORT.format(imports=imports, arguments=arguments),
    )


def _card(
    name: str, head: dict, summary: str, architecture: str, facts: Facts, use: str
) -> str:
    """A card.

    Args:
        head: begins its YAML.
        summary: its first sentence, with a place for the {size}.
        use: how to use the model.
    """
    base, task = facts.base_model, head["pipeline_tag"]
    summary = summary.format(
        size=f"{architecture.upper()} of {facts.weights:,} weights"
    )
    if base:
        shown = f"`{base}`"
        if hub.is_address(base):
            head = head | {"base_model": hub.parse(base).name}
            shown = "[{0}](https://huggingface.co/{0})".format(head["base_model"])
        summary += f"\nIt began as {shown}."
    head = head | {"tags": [architecture, "tensorflow", "keras"]}
    if facts.scores:
        head |= {"model-index": [{"name": name, "results": [_result(task, facts)]}]}
    sections = {
        "Data": [f"- {line}" for line in facts.data],
        "Scores": [f"| {k} | {v:.6g} |" for k, v in facts.scores.items()],
        "Training": [f"- `{n}`: {_yaml(v)}" for n, v in facts.settings.items()],
        "Use": [use],
    }
    if facts.scores:
        sections["Scores"][:0] = [f"| score | {_data_of_scores(facts)} |", "|---|---|"]
    return _CARD.format(
        head="\n".join(f"{key}: {_yaml(value)}" for key, value in head.items()),
        name=name,
        summary=summary,
        sections="".join(
            _SECTION.format(title=title, body="\n".join(lines))
            for title, lines in sections.items()
            if lines
        ),
    )


def _data_of_scores(facts):
    # Without a task, they may be the records of the training.
    return "held-out data" if facts.task else "evaluation"


def _result(task, facts):
    dataset = facts.task or _data_of_scores(facts)
    return {
        "task": {"type": task},
        "dataset": {
            "name": dataset,
            "type": re.sub(r"[^a-z0-9]+", "-", dataset.lower()),
        },
        "metrics": [
            {"type": name.removeprefix("eval_"), "value": value}
            for name, value in facts.scores.items()
        ],
    }


def _yaml(value) -> str:
    return json.dumps(value, ensure_ascii=False)  # which is YAML, too
