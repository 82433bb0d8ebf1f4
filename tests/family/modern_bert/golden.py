"""The golden models of transformers, and ours with their weights."""

import numpy as np

import tests
from training.storage.source import Source, read_config
from modeling.objectives import masked_lm, tasks

FOLDER = tests.GOLDEN / "modern_bert"
OBJECTIVES = {
    "masked_lm": masked_lm.MaskedLM(),
    "classifier": tasks.Classification(3),
    "mean": tasks.Classification(3),
    "tokens": tasks.Tagging(3),
    "questions": tasks.Span(),
}


def load(name: str, folder=None):
    """The network of a folder, golden by default, with all its weights."""
    folder = str(folder or FOLDER / name)
    network = OBJECTIVES[name].network(read_config(folder))
    report = Source.open(folder).load(
        {v.path: v for v in network.weights},
        network.encoder.required_variables,
        network.encoder.scope,
    )
    assert (report.initial, report.unused) == ([], [])
    return network


def rows(kind: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / "inputs.npz") as file:
        ids, mask = file[f"{kind}_ids"], file[f"{kind}_mask"]
    places = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    return {"input_ids": ids, "input_mask": mask, "masked_lm_positions": places}


def outputs(name: str) -> dict[str, np.ndarray]:
    """Theirs."""
    with np.load(FOLDER / name / "outputs.npz") as file:
        return dict(file)


def logits(network, batch) -> dict[str, np.ndarray]:
    """Ours, by their names."""
    made = network(batch).items()
    made = {name.removeprefix("masked_lm_"): np.array(value) for name, value in made}
    return {name: value for name, value in made.items() if "logits" in name}
