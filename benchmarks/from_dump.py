"""From a wiki's dump to a trained model, with a generation that is killed on the way.

    python -m benchmarks.from_dump --folder=/tmp/from_dump --megabytes=64

Makes a dump of 10,000 pages in three languages (`wiki.py`), builds a vocabulary, generates
records twice, once without disturbance and once killed and continued, compares their bytes,
and trains a small model for ten updates. Prints what each step took.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import command_line
import options
from benchmarks import wiki
from errors import UserError

_ROOT = pathlib.Path(__file__).parent.parent
_CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    folder: str = options.field(help="Where all files go; must be empty or absent.")
    megabytes: int = options.field(64, help="Size of the dump.", at_least=1)
    vocab_size: int = options.field(2_000, help="Size of the vocabulary.")
    num_workers: int = options.field(2, help="Processes of each step.", at_least=1)


def _command(script: str, **flags) -> list[str]:
    return [sys.executable, str(_ROOT / script), *options.words(**flags)]


def _run(script: str, **flags) -> None:
    began = time.monotonic()
    subprocess.run(_command(script, **flags), check=True, stdout=subprocess.DEVNULL)
    print(f"{script}: {time.monotonic() - began:.1f} s", flush=True)


def _killed(seconds: float, script: str, **flags) -> None:
    """Runs a script, and kills all of its processes after some seconds."""
    process = subprocess.Popen(
        _command(script, **flags), stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise UserError(f"{script}: ended before it was killed; pass more --megabytes")
    print(f"{script}: killed after {seconds:.1f} s", flush=True)


def main(chosen: Options) -> None:
    """Raises UserError if the continued records differ from the undisturbed ones."""
    folder = pathlib.Path(chosen.folder)
    folder.mkdir(parents=True, exist_ok=True)
    dump, vocabulary = str(folder / "dump.xml.bz2"), str(folder / "vocab.txt")
    whole, continued = str(folder / "whole.tfrecord"), str(folder / "records.tfrecord")
    print(f"{dump}: {wiki.write(dump, chosen.megabytes):,} pages", flush=True)
    reading = {"input_format": "wikipedia", "num_workers": chosen.num_workers}
    reading["input_file"] = dump
    _run(
        "build_vocab.py",
        output_file=vocabulary,
        vocab_size=chosen.vocab_size,
        **reading,
    )
    reading |= {"vocab_file": vocabulary, "dupe_factor": 2}
    began = time.monotonic()
    _run("create_pretraining_data.py", output_file=whole, **reading)
    seconds = time.monotonic() - began
    for share in (0.2, 0.4):
        _killed(
            share * seconds,
            "create_pretraining_data.py",
            output_file=continued,
            **reading,
        )
    _run("create_pretraining_data.py", output_file=continued, **reading)
    if pathlib.Path(whole).read_bytes() != pathlib.Path(continued).read_bytes():
        raise UserError(f"{continued}: differs from {whole}; report it")
    print(f"{continued}: the same {os.path.getsize(whole) / 1e6:.1f} MB as undisturbed")
    config = folder / "config.json"
    config.write_text(json.dumps(_CONFIG | {"vocab_size": chosen.vocab_size}))
    _run(
        "run_pretraining.py",
        do_train=True,
        input_file=continued,
        bert_config_file=str(config),
        output_dir=str(folder / "model"),
        num_train_steps=10,
        num_warmup_steps=2,
        train_batch_size=8,
    )


if __name__ == "__main__":
    command_line.run(main, Options)
