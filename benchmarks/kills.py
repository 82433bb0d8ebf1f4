"""Kills jobs at random moments, restarts them until they finish, and compares every byte.

python -m benchmarks.kills --kills=50 [--jobs=generation,pretraining,fine_tuning]

The jobs have the size of small real ones: 30,522 words, two layers of 64, dropout,
length buckets. Their files are compared with those of an uninterrupted run.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pathlib
import random
import signal
import string
import subprocess
import sys
import tempfile
import time

import options

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
}
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPEED = "examples_per_second"  # the only figure that varies between runs


@dataclasses.dataclass(frozen=True)
class Options:
    kills: int = options.field(50, help="Minimum number for each job.")
    jobs: list[str] = options.field(
        ["generation", "pretraining", "fine_tuning"], help="Which jobs to kill."
    )
    seed: int = options.field(0, help="Decides when a job is killed.")
    size: float = options.field(1.0, help="Scales the work of each job.")


# --- What is killed ------------------------------------------------------------------


def write_inputs(folder: pathlib.Path, size: float = 1.0) -> None:
    """Writes a vocabulary, a config, labelled texts, and 6 MB times `size` of corpus."""
    rng = random.Random(0)
    letters = itertools.product(string.ascii_lowercase, repeat=4)
    count = CONFIG["vocab_size"] - len(_SPECIAL_TOKENS)
    words = ["".join(word) for word in itertools.islice(letters, count)]
    (folder / "vocab.txt").write_text("\n".join((*_SPECIAL_TOKENS, *words)) + "\n")
    (folder / "config.json").write_text(json.dumps(CONFIG))

    def sentence(longest):
        return " ".join(rng.choices(words, k=rng.randint(3, longest)))

    with open(folder / "corpus.txt", "w") as file:
        for _ in range(int(8_000 * size)):
            for _ in range(rng.randint(2, 20)):
                file.write(sentence(25) + "\n")
            file.write("\n")
    for name, rows in (("train", int(1_500 * size)), ("dev", 100), ("test", 100)):
        lines = [f"{sentence(90)}\t{rng.choice('ab')}\n" for _ in range(rows)]
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(lines))


def commands(inputs: pathlib.Path, size: float = 1.0) -> dict[str, list[str]]:
    """Job -> its command, which writes to the folder "output" where it runs.

    Pre-training uses the records that the generation left in inputs/output.
    """
    common = (f"--vocab_file={inputs}/vocab.txt", "--max_seq_length=128")
    trains = (
        f"--bert_config_file={inputs}/config.json",
        "--output_dir=output",
        "--do_train",
        "--do_eval",
        "--log_every_steps=7",
        "--eval_every_steps=15",
    )
    found = {
        "generation": [
            "create_pretraining_data.py",
            *common,
            f"--input_file={inputs}/corpus.txt",
            "--output_file=output/records@3",
            "--dupe_factor=5",
            "--num_workers=2",
        ],
        "pretraining": [
            "run_pretraining.py",
            *trains,
            "--max_seq_length=128",
            f"--input_file={inputs}/output/records-0000[01]-of-00003",
            f"--eval_input_file={inputs}/output/records-00002-of-00003",
            "--max_eval_steps=3",
            "--train_batch_size=16",
            f"--num_train_steps={int(120 * size)}",
            "--num_warmup_steps=10",
            "--learning_rate=1e-3",
            "--save_checkpoints_steps=10",
        ],
        "fine_tuning": [
            "run_classifier.py",
            *common,
            *trains,
            "--do_predict",
            "--task_name=custom",
            f"--data_dir={inputs}",
            "--train_file=train.tsv",
            "--dev_file=dev.tsv",
            "--test_file=test.tsv",
            "--train_batch_size=16",
            "--num_train_epochs=1",
            "--learning_rate=1e-3",
            "--save_checkpoints_steps=10",
            "--early_stopping_patience=1000",
        ],
    }
    return {
        job: [sys.executable, str(ROOT / script), *flags]
        for job, (script, *flags) in found.items()
    }


# --- Killing and comparing -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moment:
    """When a job is killed: so many seconds after it has written so many times."""

    seconds: float
    changes: int = 0
    written: str = "*"  # a pattern; other files do not count


def run(command: list[str], folder: pathlib.Path, moment: Moment | None = None) -> bool:
    """Runs a command, killed at a moment; returns whether it ended before that.

    Raises:
        RuntimeError: it failed; includes its output.
    """
    folder.mkdir(exist_ok=True)
    with open(folder / "log", "a+") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        if moment:
            _wait_for(moment, process, folder / "output")
            process.send_signal(signal.SIGKILL)
        if process.wait() not in (0, -signal.SIGKILL):
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)}:\n{log.read()[-2000:]}")
    return process.returncode == 0


def _wait_for(moment, process, folder):
    """Returns at the moment, or at the end of the process."""
    state, changes = _state(folder, moment.written), moment.changes
    while changes and process.poll() is None:
        time.sleep(0.02)
        if (now := _state(folder, moment.written)) != state:
            state, changes = now, changes - 1
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment.seconds)


def _state(folder, written):
    """What changes whenever something is written."""
    # A file may be gone before it is examined.
    with contextlib.suppress(FileNotFoundError):
        return {path: path.stat().st_mtime_ns for path in folder.rglob(written)}


def killed(command: list[str], folder: pathlib.Path, moments: list[Moment]) -> int:
    """Kills a command at one moment after another, until it ends or they run out.

    Returns:
        how many of the moments were used.
    """
    for number, moment in enumerate(moments):
        if run(command, folder, moment):
            return number
    run(command, folder)
    return len(moments)


def random_moment(rng: random.Random, duration: float) -> Moment:
    """Anywhere in a run, including its start, or close to one of its writes."""
    if rng.random() < 0.3:
        return Moment(rng.uniform(0, duration))
    return Moment(rng.uniform(0, 0.2), changes=rng.randint(1, 12))


def digests(folder: pathlib.Path) -> dict[str, str]:
    """File -> the SHA-256 of its content, without times and speeds.

    Omits TensorBoard's events, which contain times, and hidden files, which are the
    program's notes to itself.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name.startswith(".") or "tfevents" in path.name:
            continue
        content = path.read_bytes()
        if path.name == "metrics.jsonl":
            rows = [json.loads(line) for line in content.splitlines()]
            rows = [{k: v for k, v in row.items() if k != _SPEED} for row in rows]
            content = json.dumps(rows).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The files that only one has, or that differ."""
    return sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))


def main(given: Options) -> None:
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as temporary:
        inputs = pathlib.Path(temporary, "inputs")
        inputs.mkdir()
        write_inputs(inputs, given.size)
        jobs = commands(inputs, given.size)
        run(jobs["generation"], inputs)
        for job in given.jobs:
            began = time.monotonic()
            straight = pathlib.Path(temporary, job)
            run(jobs[job], straight)
            expected = digests(straight / "output")
            duration = time.monotonic() - began
            kills = runs = 0
            wrong = []
            while kills < given.kills:
                folder = pathlib.Path(temporary, f"{job}-{runs}")
                most = given.kills - kills
                moments = [random_moment(rng, duration) for _ in range(most)]
                kills += killed(jobs[job], folder, moments)
                wrong += differing(expected, digests(folder / "output"))
                runs += 1
                print(
                    f"{job}: {kills} kills in {runs} runs of {duration:.0f} s, "
                    f"{len(expected)} files each: {len(wrong)} differ {wrong[:5] or ''}",
                    flush=True,
                )


if __name__ == "__main__":
    options.run(main, Options)
