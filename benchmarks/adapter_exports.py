"""Compares one export of several LoRA runs with as many merged exports.

python -m benchmarks.adapter_exports --folder=/tmp/adapter_exports

Random weights of the size of BERT-Base, one update a run. A process for each measurement
loads what answers, and answers one text at a time.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

import command_line
import options
from training.backend import tf  # noqa: F401
from training.storage import checkpoint
from modeling.architectures.bert import BertConfig, BertEncoder
from serving.predictor import Predictor
from text.tokenizers.vocabulary import SPECIAL_TOKENS

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TEXT = " ".join(f"w{number}" for number in range(30))


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    folder: str = options.field(help="Where to write; kept, and used again.")
    counts: str = options.field("1,2,4", help="Numbers of adapters.")
    lora_rank: int = options.field(8, help="Of every run.")
    repeats: int = options.field(30, help="Texts that are timed.")
    measure: str = options.field(
        "",
        help="Only load these exports, and answer by these adapters, as FOLDER:NAME.",
    )


def _write_base(folder: str) -> None:
    config = BertConfig(30522)
    words = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(30522 - len(SPECIAL_TOKENS)))]
    files = {"vocab.txt": "\n".join(words) + "\n"}
    files["bert_config.json"] = config.to_json_string()
    for labels in (2, 3, 4, 5):
        rows = "".join(f"w{n} w{n % 7}\t{n % labels}\n" for n in range(40))
        files[f"{labels}.tsv"] = f"text\tlabel\n{rows}"
    os.makedirs(folder, exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)
    weights = {v.path: v.numpy() for v in BertEncoder(config, seed=0).weights}
    checkpoint.write_bundle(os.path.join(folder, "model.ckpt"), weights)


def _run(settings: Options, number: int, **flags) -> None:
    """The training of a run, or its export: see run_classifier.py."""
    table = f"{number + 2}.tsv"
    flags |= {"task_name": "custom", "data_dir": settings.folder, "train_file": table}
    flags |= {"output_dir": os.path.join(settings.folder, f"run{number}")}
    flags |= {"init_checkpoint": os.path.join(settings.folder, "model.ckpt")}
    flags |= {"num_train_epochs": 0.8}
    line = [sys.executable, os.path.join(_ROOT, "run_classifier.py")]
    subprocess.run([*line, *options.words(**flags)], check=True)


def _size(folder: str) -> int:
    return sum(
        os.path.getsize(os.path.join(path, name))
        for path, _, names in os.walk(folder)
        for name in names
    )


def _measure(flags: Options) -> None:
    """Prints the resident memory, now and at most, and milliseconds of a text."""
    loaded, served = {}, []
    for place in flags.measure.split(","):
        folder, _, name = place.partition(":")
        if not name:
            served.append(Predictor(folder))
            continue
        if folder not in loaded:
            loaded[folder] = Predictor(folder)
        served.append(loaded[folder].named([name]))
    times = []
    for _ in range(flags.repeats):
        for each in served:
            begun = time.perf_counter()
            each.predict([{"text": _TEXT}])
            times.append(1e3 * (time.perf_counter() - begun))
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    memory = [int(status[key].split()[0]) / 1e6 for key in ("VmRSS", "VmHWM")]
    print(json.dumps([*memory, statistics.median(times)]))


def _show(flags: Options, title: str, size: int, places: list[str]) -> None:
    line = [sys.executable, "-m", "benchmarks.adapter_exports"]
    line += [f"--folder={flags.folder}", f"--measure={','.join(places)}"]
    line += [f"--repeats={flags.repeats}"]
    done = subprocess.run(line, cwd=_ROOT, check=True, capture_output=True, text=True)
    resident, peak, latency = json.loads(done.stdout.splitlines()[-1])
    print(
        f"| {title} | {size / 1e6:,.0f} MB | {resident:.2f} GB | {peak:.2f} GB "
        f"| {latency:.1f} ms |",
        flush=True,
    )


def main(flags: Options) -> None:
    if flags.measure:
        _measure(flags)
        return
    counts = [int(count) for count in flags.counts.split(",")]
    if not os.path.exists(os.path.join(flags.folder, "model.ckpt.index")):
        _write_base(flags.folder)
    runs = [os.path.join(flags.folder, f"run{n}") for n in range(max(counts))]
    for number, run in enumerate(runs):
        if not os.path.exists(os.path.join(run, "run.json")):
            _run(flags, number, do_train=True, lora_rank=flags.lora_rank)
    _run(flags, 0, do_export=True)
    size = _size(os.path.join(runs[0], "export"))
    print(
        "| adapters | on disk | memory | peak | one text |", "|---" * 5 + "|", sep="\n"
    )
    for count in counts:
        # The others' would be of the same size.
        _show(flags, f"{count}, merged exports", count * size, runs[:1] * count)
    for count in counts[1:]:
        _run(flags, 0, do_export=True, export_adapters=runs[1:count])
        size = _size(os.path.join(runs[0], "export"))
        places = [f"{runs[0]}:run{number}" for number in range(count)]
        _show(flags, f"{count}, one export", size, places)


if __name__ == "__main__":
    command_line.run(main, Options)
