"""A small base in Hugging Face's layout, and a run of ours that adapts it."""

import dataclasses
import pathlib

import numpy as np

import convert_checkpoint
import run_classifier
from training.storage import checkpoint
from modeling.architectures.roberta import RobertaConfig
from modeling.objectives import tasks
from tests import classifier, jobs, tiny
from training.interchange import hugging_face

CONFIGS = {
    "bert": dataclasses.replace(classifier.TINY, num_hidden_layers=2),
    "roberta": RobertaConfig(
        **{
            name: getattr(classifier.TINY, name)
            for name in ("vocab_size", "hidden_size", "num_attention_heads")
        },
        num_hidden_layers=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_act="gelu_erf",
        pad_token_id=0,
    ),
}


def write_base(folder: pathlib.Path, kind: str) -> None:
    """The encoder alone, as their BertModel or RobertaModel saves it."""
    tiny.write(folder, classifier.WORDS, classifier.TINY)
    size = len((folder / "vocab.txt").read_text().split())
    config = dataclasses.replace(CONFIGS[kind], vocab_size=size)
    network = tasks.Classification(2).network(config, seed=3)
    weights = {v.path: v.numpy() for v in network.encoder.weights}
    rng = np.random.default_rng(0)
    for name, value in weights.items():
        weights[name] = value + 0.05 * rng.normal(size=value.shape).astype(np.float32)
    if kind == "roberta":  # as the released ones, which have no pooler
        weights = {k: v for k, v in weights.items() if "/pooler/" not in k}
    hugging_face.write(str(folder / "base"), weights, config)


def adapt(folder: pathlib.Path) -> None:
    """Trains adapters of the base, in output/, and writes them for peft, in ours/."""
    files = classifier.custom(folder, "tsv", ["x", "y"], number=40)
    flags = jobs.flags(folder, **files, task_name="custom", data_dir=str(folder))
    base = str(folder / "base")
    flags |= {"init_checkpoint": base, "bert_config_file": base, "max_seq_length": 32}
    flags |= {"do_train": True, "lora_rank": 2, "lora_alpha": 4.0}
    jobs.run(run_classifier, flags | {"learning_rate": [1e-2]})
    given = {"input": [str(folder / "output")], "output_dir": str(folder / "ours")}
    jobs.run(convert_checkpoint, given | {"layout": "peft"})


def logits(folder: pathlib.Path, path: str, kind: str, inputs: dict) -> np.ndarray:
    """Those of a network of ours with the weights of a checkpoint."""
    size = len((folder / "vocab.txt").read_text().split())
    config = dataclasses.replace(CONFIGS[kind], vocab_size=size)
    network = tasks.Classification(2).network(config, seed=5)
    checkpoint.load({v.path: v for v in network.weights}, path, required="")
    return network(inputs)["logits"].numpy()
