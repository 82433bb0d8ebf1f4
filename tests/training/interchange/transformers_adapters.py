"""Adapters of peft for random models of transformers: theirs, and what is made of them."""

import dataclasses
import pathlib
import random

import numpy as np

from training.storage.source import Source, read_config
from tests.training.interchange import transformers_models as models
from tests.training.interchange.transformers_configs import ROWS, Case, case

# Head -> the ending of a class, and what peft calls its task.
HEADS = {
    "classification": ("ForSequenceClassification", "SEQ_CLS"),
    "tagging": ("ForTokenClassification", "TOKEN_CLS"),
    "questions": ("ForQuestionAnswering", "QUESTION_ANS"),
    "choice": ("ForMultipleChoice", None),
    "no head": ("Model", "FEATURE_EXTRACTION"),
}
ARCHITECTURES = tuple(name for name, row in ROWS.items() if row.targets)


def case_of(architecture: str, head: str, number: int = 1) -> Case:
    classes = ROWS[architecture].classes
    name = classes[0].removesuffix("Model") + HEADS[head][0]
    # Of two heads for questions, the one like BERT's.
    name = f"{name}Simple" if f"{name}Simple" in classes else name
    made = case(architecture, name, number, random.Random(number), may_be_odd=False)
    labels = {"num_labels": 2 if head == "questions" else 3}
    return dataclasses.replace(made, values=made.values | labels)


def make(one: Case, head: str, folder: pathlib.Path):
    """A model with an adapter of random weights, saved in a folder next to its base."""
    import peft
    import torch

    models.make(one, folder / "whole").base_model.save_pretrained(folder / "base")
    saved = ["classifier"] if head == "choice" else None
    config = peft.LoraConfig(
        r=2,
        lora_alpha=6,
        target_modules=one.row.targets,
        modules_to_save=one.row.saved.get(head, saved),
        task_type=HEADS[head][1],
    )
    model = peft.get_peft_model(_base(one, folder), config)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.requires_grad:
                weights += 0.1 * torch.randn_like(weights)
    model.save_pretrained(folder / "adapter")
    return model.eval()


def _base(one, folder):
    import torch
    import transformers

    torch.manual_seed(one.number)
    labels = {"num_labels": one.values["num_labels"]}
    kind = getattr(transformers, one.their_class)
    return kind.from_pretrained(folder / "base", **labels).eval()


def load(one: Case, folder: pathlib.Path, name: str):
    """What peft makes of an adapter for the base in the folder, to be trained further."""
    import peft

    adapter = str(folder / name)
    return peft.PeftModel.from_pretrained(
        _base(one, folder), adapter, is_trainable=True
    ).eval()


def trained(model) -> set[str]:
    """The names of what would be trained, whatever they are wrapped in."""
    names = {name for name, value in model.named_parameters() if value.requires_grad}
    return {name.replace(".modules_to_save.default", "") for name in names}


def ours(one: Case, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Our outputs by their names, of a network as a run would load the adapter."""
    folder = folder / "adapter"
    config = read_config(str(folder))
    head = models.head_of(one)
    network = head.network(config, one.values["num_labels"])
    encoder = getattr(network, "encoder", network)
    heads = (v.path for v in network.weights if not v.path.startswith(encoder.scope))
    required = (*encoder.required_variables, *heads)
    report = Source.open(str(folder)).load(
        {v.path: v for v in network.weights}, required, encoder.scope
    )
    assert not set(report.unused) - {"output_bias"}, report
    outputs = network(models.batch(one))
    if network is encoder:
        return {"last_hidden_state": np.array(outputs["sequence_output"])}
    found = {name: np.array(outputs[own]) for name, own in head.outputs.items()}
    if "output_bias" in report.unused:  # one for all choices
        bias = Source.open(report.source).read(["output_bias"])["output_bias"]
        found = {name: value + bias for name, value in found.items()}
    return found
