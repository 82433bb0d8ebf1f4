"""Measures the time from a process's start to its first update, from a checkpoint.

    python -m benchmarks.start [--vs=OTHER_CHECKOUT]

run_pretraining.py starts from random weights of BERT-Base on a local disk, and with some
milliseconds added to each operation on a file of its own, as on a network disk. Checkouts
take turns. The first start after the files were written warms the disk, and is not counted.
"""

import dataclasses
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import command_line
import options
from training.backend import tf
from benchmarks import random_records
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs
from text.instances.table import RowOptions

_ROOT = pathlib.Path(__file__).parent.parent
_CHILD = str(_ROOT / "benchmarks" / "first_update.py")
_LENGTH, _PREDICTIONS = 128, 20
_SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    vs: str | None = options.field(None, help="Another checkout, to compare with.")
    delay_ms: float = options.field(30.0, help="Added to each operation on a file.")
    rounds: int = options.field(3, help="Starts of each kind, in turns.")
    num_hidden_layers: int = options.field(12, help="Layers of the model.")
    hidden_size: int = options.field(768, help="Width of the model.")
    batch_size: int = options.field(2, help="Records of 128 tokens per update.")


def write(folder: str, chosen: Options) -> list[str]:
    """Writes a checkpoint and records; returns the flags of a training from them."""
    config = BertConfig(
        vocab_size=random_records.VOCAB_SIZE,
        hidden_size=chosen.hidden_size,
        num_hidden_layers=chosen.num_hidden_layers,
        num_attention_heads=max(chosen.hidden_size // 64, 1),
        intermediate_size=4 * chosen.hidden_size,
    )
    network = sentence_pairs.MaskedLMNextSentence().network(config, seed=1)
    model = pathlib.Path(folder) / "model"
    model.mkdir()
    (model / "bert_config.json").write_text(config.to_json_string())
    ids = range(config.vocab_size)
    words = "".join(f"{_SPECIAL.get(id, f'word{id}')}\n" for id in ids)
    (model / "vocab.txt").write_text(words)
    weights = {variable.path: variable for variable in network.weights}
    tf.raw_ops.SaveV2(
        prefix=str(model / "bert_model.ckpt"),
        tensor_names=list(weights),
        shape_and_slices=[""] * len(weights),
        tensors=[tf.convert_to_tensor(variable) for variable in weights.values()],
    )
    rows = RowOptions(max_seq_length=_LENGTH, max_predictions_per_seq=_PREDICTIONS)
    records = random_records.write(folder, 8 * chosen.batch_size, rows)
    return [
        "--do_train",
        f"--input_file={records}",
        f"--init_checkpoint={model / 'bert_model.ckpt'}",
        f"--train_batch_size={chosen.batch_size}",
        f"--max_seq_length={_LENGTH}",
        f"--max_predictions_per_seq={_PREDICTIONS}",
        "--num_train_steps=1000",
    ]


def start(checkout: str, folder: str, delay_ms: float, flags: list[str]) -> tuple:
    """Seconds to the first update, processor time, and operations on files."""
    environment = os.environ | {"PYTHONPATH": checkout}
    with tempfile.TemporaryDirectory(dir=folder) as output:
        line = [sys.executable, "-P", _CHILD, folder, str(delay_ms), *flags]
        line.append(f"--output_dir={output}/output")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = done.stdout.strip().rpartition("\n")[2]
    if not last.startswith("updated after "):
        sys.exit(f"the process ended without an update: {done.stderr}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, used, int(last.split()[2])


def main(chosen: Options) -> None:
    """Prints the medians of all checkouts."""
    checkouts = [str(_ROOT), *([os.path.abspath(chosen.vs)] if chosen.vs else [])]
    kinds = [(each, delay) for delay in (0.0, chosen.delay_ms) for each in checkouts]
    taken = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        flags = write(folder, chosen)
        for checkout in checkouts:
            start(checkout, folder, 0.0, flags)
        for _ in range(chosen.rounds):
            for checkout, delay in kinds:
                taken[checkout, delay].append(start(checkout, folder, delay, flags))
    for (checkout, delay), figures in taken.items():
        took, used, operations = map(statistics.median, zip(*figures, strict=True))
        lowest, highest = min(figures)[0], max(figures)[0]
        print(
            f"{checkout}, {delay:g} ms more: {took:.2f} s to the first update "
            f"({lowest:.2f} to {highest:.2f}), processor time {used:.2f} s, "
            f"{operations:g} operations on files"
        )


if __name__ == "__main__":
    command_line.run(main, Options)
