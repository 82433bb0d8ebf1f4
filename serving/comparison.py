"""Compares an export of fewer bits with one of float32, and refuses it if answers differ.

The report, precision.json, is a file of the export.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from errors import UserError
from files import anywhere
from serving import speed

REPORT = "precision.json"
_TIMED = 3  # rows whose time is taken
_NEAR = 0.01  # of the range of numbers that a model predicts
_ALIKE = 0.99  # the cosine of vectors


class ComparedRows(NamedTuple):
    """What an export of fewer bits is held to.

    Attributes:
        batch: rows, int32 arrays by name.
        dev: what is known of these rows; None if they are samples.
    """

    batch: Mapping[str, np.ndarray]
    dev: "DevSet | None" = None


class DevSet(NamedTuple):
    """What the outputs for some rows mean.

    Attributes:
        split: their set.
        reference: the outputs of float32.
        answers: from outputs to the answers, in JSON.
        metric: the name of `score`.
        score: from outputs to the metric on this set.
        min_agreement: the share of predictions that must be those of float32.
    """

    split: str
    reference: Mapping[str, np.ndarray]
    answers: Callable[[Mapping], Sequence[dict]]
    metric: str
    score: Callable[[Mapping], float]
    min_agreement: float


class FormOutputs(NamedTuple):
    """One form of an export: what it was made from, what it became, what that says.

    Attributes:
        float32, small: paths of a file or a folder.
        outputs: of the small one, for the rows of the `ComparedRows`.
    """

    float32: str
    small: str
    outputs: Mapping[str, np.ndarray]


def report(
    precision: str, compared: ComparedRows, forms: Mapping[str, FormOutputs]
) -> dict[str, object]:
    """The content of the report.

    Raises:
        UserError: the predictions of a form differ more than they may.
    """
    content, found = {"precision": precision}, {name: {} for name in forms}
    if compared.dev:
        expected = compared.dev.answers(compared.dev.reference)
        content |= {"set": compared.dev.split, "examples": len(expected)}
        for name, form in forms.items():
            found[name] = _differences(compared.dev, expected, form.outputs)
            _check(name, precision, compared.dev, found[name]["agreement"])
    some = {name: values[:_TIMED] for name, values in compared.batch.items()}
    paths = {name: (form.float32, form.small) for name, form in forms.items()}
    ratios = speed.measure(paths, some)
    for name, form in forms.items():
        sizes = [_size(path) for path in (form.small, form.float32)]
        found[name] |= {
            "bytes": sizes[0],
            "bytes_of_float32": sizes[1],
            "share_of_bytes": round(sizes[0] / sizes[1], 3),
            "times_as_fast": round(ratios[name], 2),
        }
    return content | {"forms": found}


def write(directory: str, content: Mapping) -> None:
    """Writes the report, and says what it contains."""
    with anywhere.replacing(os.path.join(directory, REPORT), "w") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    for name, values in content["forms"].items():
        facts = [
            f"{values['share_of_bytes']:.0%} of the bytes of float32",
            f"{values['times_as_fast']:.2f} times as fast on one thread",
        ]
        if "set" in content:
            share = f"{values['agreement']:.2%} of the predictions on {content['set']}"
            facts.append(f"{share} are the same")
        print(f"{name} as {content['precision']}: {', '.join(facts)}", flush=True)


def _check(name, precision, dev, agreement):
    if agreement < dev.min_agreement:
        raise UserError(
            f"--export_precision={precision}: only {agreement:.2%} of the predictions of "
            f"{name} on {dev.split} are those of float32, less than --min_agreement="
            f"{dev.min_agreement:g}, so the export was removed; choose another precision, "
            "or lower --min_agreement"
        )


def _differences(dev, expected, outputs):
    answers = dev.answers(outputs)
    both = [*zip(expected, answers, strict=True)]
    pairs = [
        pair
        for answers in both
        for pair in zip(*map(_predictions, answers), strict=True)
    ]
    changes = [
        abs(before - after)
        for answers in both
        for before, after in zip(*map(_probabilities, answers), strict=True)
    ]
    found = {"agreement": round(_agreement(pairs), 5)}
    if changes:
        found["largest_change_of_a_probability"] = round(max(changes), 5)
    scores = [float(dev.score(outputs)) for outputs in (outputs, dev.reference)]
    return found | {dev.metric: scores[0], f"{dev.metric}_of_float32": scores[1]}


def _agreement(pairs: Sequence[tuple]) -> float:
    """The share of equal pairs; numbers are equal if their range is much larger, vectors
    if their directions are nearly the same.
    """
    if not pairs:
        return 1.0
    if isinstance(pairs[0][0], np.ndarray):
        cosines = [a @ b / np.sqrt(a @ a * (b @ b)) for a, b in pairs]
        return float(np.mean(np.array(cosines) >= _ALIKE))
    if all(isinstance(value, float) for pair in pairs for value in pair):
        numbers = np.array(pairs)
        apart = np.abs(numbers[:, 0] - numbers[:, 1])
        return float(np.mean(apart <= _NEAR * np.ptp(numbers[:, 0])))
    return float(np.mean([before == after for before, after in pairs]))


def _predictions(answer: Mapping) -> list:
    """What an answer decides: each of its tags, or one thing."""
    if "tags" in answer:
        return answer["tags"]
    if "vector" in answer:
        return [np.array(answer["vector"])]
    if "predicted" in answer or "answer" in answer:
        return [answer.get("predicted", answer.get("answer"))]
    return [list(_texts(answer))]


def _texts(part) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, Mapping) else ():
        yield from _texts(inner)
    for inner in part if isinstance(part, list) else ():
        yield from _texts(inner)


def _probabilities(answer: Mapping) -> list[float]:
    values = answer.get("probabilities", [])
    return list(values.values() if isinstance(values, Mapping) else values)


def _size(path: str) -> int:
    if not anywhere.isdir(path):
        with anywhere.open_file(path) as file:
            return file.size()
    return sum(
        _size(os.path.join(folder, name))
        for folder, _, names in anywhere.walk(path)
        for name in names
    )
