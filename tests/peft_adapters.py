"""Small bases in Hugging Face's layout, and runs of ours that adapt them."""

import dataclasses
import pathlib

import numpy as np

import convert_checkpoint
import run_classifier
from training.storage import adapters, checkpoint, checkpoint_contents
from training.storage.folder import Folder
from training.storage.source import Source
from modeling.objectives import low_rank, tasks
from tests import classifier, jobs, samples, tiny
from training.interchange import hugging_face

_SIZES = {
    name: getattr(classifier.TINY, name)
    for name in ("vocab_size", "hidden_size", "num_attention_heads")
} | {
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_act": "gelu_erf",
}
ROWS = {
    "bert": samples.Adapted(lacks="(none)", head=("classifier",))
} | samples.collect("ADAPTED")
_CONFIGS = {"bert": classifier.TINY} | samples.collect("CONFIGS")
CONFIGS = {
    name: dataclasses.replace(_CONFIGS[name], **_SIZES | row.changes)
    for name, row in ROWS.items()
}


def write_base(folder: pathlib.Path, kind: str) -> None:
    """The encoder alone, as their BertModel, RobertaModel and so on save it."""
    tiny.write(folder, classifier.WORDS, classifier.TINY)
    config = config_of(folder, kind)
    network = tasks.Classification(2).network(config, seed=3)
    weights = {v.path: v.numpy() for v in network.encoder.weights}
    rng = np.random.default_rng(0)
    for name, value in weights.items():
        weights[name] = value + 0.05 * rng.normal(size=value.shape).astype(np.float32)
    weights = {k: v for k, v in weights.items() if ROWS[kind].lacks not in k}
    hugging_face.write(str(folder / "base"), weights, config)
    (folder / "bert_config.json").write_text(config.to_json_string())


def adapt(folder: pathlib.Path, kind: str) -> None:
    """Trains adapters of the base, in output/, and writes them for peft, in ours/."""
    files = classifier.custom(folder, "tsv", ["x", "y"], number=40)
    flags = jobs.flags(folder, **files, task_name="custom", data_dir=str(folder))
    base = str(folder / "base")
    flags |= {"init_checkpoint": base, "max_seq_length": 32}
    own = {"bert_config_file": str(folder / "bert_config.json"), "change_network": True}
    flags |= own if ROWS[kind].missing else {"bert_config_file": base}
    flags |= {"do_train": True, "lora_rank": 2, "lora_alpha": 4.0}
    flags["lora_targets"] = list(ROWS[kind].targets)
    jobs.run(run_classifier, flags | {"learning_rate": [1e-2]})
    convert(folder / "output", folder / "ours")


def make(
    folder: pathlib.Path,
    kind: str,
    task=None,
    targets=None,
    **changes,
) -> None:
    """Writes random adapters of the base to output/, as a run does.

    Args:
        task: by default, classification.
        targets: by default, those of its row.
        changes: of the config.
    """
    config = dataclasses.replace(config_of(folder, kind), **changes)
    targets = targets or tuple(ROWS[kind].targets)
    write_run(folder, task or tasks.Classification(2), config, targets)


def write_run(folder: pathlib.Path, task, config, targets) -> None:
    """Writes random adapters of base/ to output/, as a run of this objective does."""
    base, output = str(folder / "base"), folder / "output"
    weights = Source.open(base).read()
    network = low_rank.LowRank(
        task, rank=2, alpha=4.0, targets=targets, base=weights
    ).network(config)
    rng = np.random.default_rng(1)
    tensors = {
        v.path: rng.normal(scale=0.1, size=v.shape).astype(np.float32)
        for v in network.trainable_variables
    }
    tensors |= {"output_weights/adam_m": rng.normal(size=3), "global_step": np.int64(1)}
    checkpoint.save(Folder.open(str(output)), 1, tensors, keep=1)
    (output / "bert_config.json").write_text(config.to_json_string())
    scoped = adapters.base_weights(Source.open(base), network.scope)
    digest = checkpoint_contents.digest(scoped)
    note = adapters.Note(base, digest, list(network.scope), 4.0)
    adapters.write_note(Folder.open(str(output)), note)


def convert(source: pathlib.Path, folder: pathlib.Path, **flags) -> None:
    flags = {
        "input": [str(source)],
        "output_dir": str(folder),
        "layout": "peft",
    } | flags
    jobs.run(convert_checkpoint, flags)


def config_of(folder: pathlib.Path, kind: str):
    size = len((folder / "vocab.txt").read_text().split())
    return dataclasses.replace(CONFIGS[kind], vocab_size=size)


def logits(folder: pathlib.Path, path: str, kind: str, inputs: dict) -> np.ndarray:
    """Those of a network of ours with the weights of a checkpoint."""
    network = tasks.Classification(2).network(config_of(folder, kind), seed=5)
    Source.open(path).load({v.path: v for v in network.weights}, required="")
    return network(inputs)["logits"].numpy()
