"""Kills jobs at random moments, restarts them until they finish, and compares every byte.

python -m benchmarks.kills --kills=50 [--jobs=generation,pretraining,...]

The jobs have the size of small real ones: 30,522 words, two layers of 64, dropout,
length buckets. Their files are compared with those of an uninterrupted run. Of two hosts,
one is killed, and the other must end by itself. An elastic job starts again on one or two
hosts, without dropout; its batches must be the same, and its last weights up to rounding.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import random
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import command_line
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
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIGS = {
    "bert": CONFIG,
    "still": CONFIG | WITHOUT_DROPOUT,
    "electra": CONFIG | {"architecture": "electra", "embedding_size": 32},
    "t5": {
        "architecture": "t5",
        "vocab_size": CONFIG["vocab_size"] + 100,  # a row for each span
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "attention_head_size": 32,
        "intermediate_size": 256,
        "eos_token_id": 3,
    },
}
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPEED = "examples_per_second"  # the only figure that varies between runs
# The numbers of hosts on which a job may run; others have one.
HOSTS = {"two_hosts": (2,), "elastic": (1, 2)}
_PATIENCE = 180  # seconds in which a host notices that it has lost another
_ROUNDING = 1e-3  # relative, of a loss; another batch differs by more


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    kills: int = options.field(50, help="Minimum number for each job.")
    jobs: list[str] = options.field(
        ["generation", "pretraining", "electra", "t5", "fine_tuning", "squad"]
        + ["two_hosts", "elastic"],
        help="Which jobs to kill.",
    )
    seed: int = options.field(0, help="Decides when a job is killed.")
    size: float = options.field(1.0, help="Scales the work of each job.")
    xla: bool = options.field(False, help="Compile training with XLA.")


# --- What is killed ------------------------------------------------------------------


def write_inputs(folder: pathlib.Path, size: float = 1.0) -> None:
    """Writes a vocabulary, configs, labelled texts, questions and a corpus.

    The corpus has 6 MB times `size`.
    """
    rng = random.Random(0)
    letters = itertools.product(string.ascii_lowercase, repeat=4)
    count = CONFIG["vocab_size"] - len(_SPECIAL_TOKENS)
    words = ["".join(word) for word in itertools.islice(letters, count)]
    (folder / "vocab.txt").write_text("\n".join((*_SPECIAL_TOKENS, *words)) + "\n")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))

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
        paragraphs = [_question(f"{name}-{i}", sentence(150), rng) for i in range(rows)]
        content = {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}
        (folder / f"{name}.json").write_text(json.dumps(content))


def _question(id, context, rng):
    answer = rng.choice(context.split())
    return {
        "context": context,
        "qas": [
            {
                "id": id,
                "question": f"where is {answer} ?",
                "answers": [{"text": answer, "answer_start": context.index(answer)}],
            }
        ],
    }


_LENGTH = "--max_seq_length=128"
_TRAINS = (
    "--output_dir=output",
    "--do_train",
    "--log_every_steps=7",
    "--learning_rate=1e-3",
    "--save_checkpoints_steps=10",
    "--train_batch_size=16",
    "--deterministic",  # which a GPU needs to be told
    _LENGTH,
)
_EVALUATES = ("--do_eval", "--eval_every_steps=15")


def commands(inputs: pathlib.Path, size: float = 1.0) -> dict[str, list[str]]:
    """Job -> its command, which writes to the folder "output" where it runs.

    Pre-training uses the records that the jobs "generation" and "dynamic" left in folders
    of these names in `inputs`.
    """
    vocabulary = f"--vocab_file={inputs}/vocab.txt"
    electra = ("--objective=replaced_tokens", "--optimizer=electra_adam")
    t5 = ("--objective=span_corruption", "--optimizer=adafactor", vocabulary)
    static, dynamic = (_held_out(inputs, job) for job in ("generation", "dynamic"))
    scripts = {
        "generation": _generates(inputs),
        "dynamic": [*_generates(inputs), "--masking=dynamic"],
        "pretraining": [*_pretrains(inputs, size, "bert", "generation"), *static],
        "electra": [
            *_pretrains(inputs, size, "electra", "dynamic"),
            *electra,
            *dynamic,
        ],
        "t5": [*_pretrains(inputs, size, "t5", "dynamic"), *t5, *dynamic],
        "two_hosts": _pretrains(inputs, size, "bert", "generation"),
        "elastic": _pretrains(inputs, size, "still", "generation"),
        "fine_tuning": [
            *_fine_tunes(inputs, "run_classifier.py"),
            "--task_name=custom",
            f"--data_dir={inputs}",
            "--train_file=train.tsv",
            "--dev_file=dev.tsv",
            "--test_file=test.tsv",
            "--early_stopping_patience=1000",
        ],
        "squad": [
            *_fine_tunes(inputs, "run_squad.py"),
            f"--train_file={inputs}/train.json",
            f"--predict_file={inputs}/dev.json",
        ],
    }
    return {
        job: [sys.executable, str(ROOT / script), *flags]
        for job, (script, *flags) in scripts.items()
    }


def _generates(inputs):
    return [
        "create_pretraining_data.py",
        f"--vocab_file={inputs}/vocab.txt",
        f"--input_file={inputs}/corpus.txt",
        "--output_file=output/records@3",
        "--dupe_factor=5",
        "--num_workers=2",
        _LENGTH,
    ]


def _pretrains(inputs, size, config, job):
    return [
        "run_pretraining.py",
        *_TRAINS,
        f"--bert_config_file={inputs}/{config}.json",
        f"--input_file={inputs}/{job}/output/records-0000[01]-of-00003",
        f"--num_train_steps={int(120 * size)}",
        "--num_warmup_steps=10",
    ]


def _held_out(inputs, job):
    records = f"{inputs}/{job}/output/records-00002-of-00003"
    return [*_EVALUATES, f"--eval_input_file={records}", "--max_eval_steps=3"]


def _fine_tunes(inputs, script):
    return [
        script,
        *_TRAINS,
        *_EVALUATES,
        f"--vocab_file={inputs}/vocab.txt",
        f"--bert_config_file={inputs}/bert.json",
        "--do_predict",
        "--num_train_epochs=1",
    ]


# --- Killing and comparing -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moment:
    """When a job is killed: so many seconds after it has written so many times."""

    seconds: float
    changes: int = 0
    written: str = "*"  # a pattern; other files do not count
    hosts: int = 1  # how many run it
    host: int = 0  # which of them is killed


def run(
    command: list[str],
    folder: pathlib.Path,
    moment: Moment | None = None,
    hosts: int = 1,
) -> bool:
    """Runs a command, killed at a moment; returns whether it ended before that.

    Args:
        hosts: how many run it, if there is no moment.

    Raises:
        RuntimeError: it failed, or other hosts did not end; includes its output.
    """
    folder.mkdir(exist_ok=True)
    hosts = moment.hosts if moment else hosts
    if hosts > 1:
        command = [*command, "--distribution=multi_worker"]
    with open(folder / "log", "a+") as log:
        processes = [
            subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **place)
            for place in _places(hosts)
        ]
        target = processes[moment.host if moment else 0]
        if moment:
            _wait_for(moment, target, folder / "output")
            target.send_signal(signal.SIGKILL)
        was_killed = target.wait() == -signal.SIGKILL
        statuses = [_status(process) for process in processes]
        # A host that lost another one says so and fails.
        expected = {0, -signal.SIGKILL} | ({1} if was_killed else set())
        if not expected.issuperset(statuses):
            log.seek(0)
            output = log.read()[-2000:]
            raise RuntimeError(f"{' '.join(command)}: ended with {statuses}:\n{output}")
    return not was_killed


def _places(hosts):
    """What the process of each host is started with."""
    if hosts == 1:
        return [{}]
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(hosts)]
        for opened in sockets:
            opened.bind(("localhost", 0))
        workers = [f"localhost:{opened.getsockname()[1]}" for opened in sockets]
    return [
        {
            "env": os.environ
            | {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": workers},
                        "task": {"type": "worker", "index": index},
                    }
                )
            }
        }
        for index in range(hosts)
    ]


def _status(process):
    """How a process ended; None if it had to be killed."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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


def killed(
    command: list[str], folder: pathlib.Path, moments: list[Moment], hosts: int = 1
) -> int:
    """Kills a command at one moment after another, until it ends or they run out.

    Returns:
        how many of the moments were used.
    """
    for number, moment in enumerate(moments):
        if run(command, folder, moment):
            return number
    run(command, folder, hosts=hosts)
    return len(moments)


def random_moment(
    rng: random.Random, duration: float, hosts: Sequence[int] = (1,)
) -> Moment:
    """Anywhere in a run, including its start, or close to one of its writes."""
    number = rng.choice(hosts)
    place = {"hosts": number, "host": rng.randrange(number)}
    if rng.random() < 0.3:
        return Moment(rng.uniform(0, duration), **place)
    return Moment(rng.uniform(0, 0.2), changes=rng.randint(1, 12), **place)


def digests(folder: pathlib.Path) -> dict[str, str]:
    """File -> the SHA-256 of its content, without times and speeds.

    Omits TensorBoard's events, which contain times, and hidden files, which are the
    program's notes to itself.
    """
    checksums = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name.startswith(".") or "tfevents" in path.name:
            continue
        content = path.read_bytes()
        if path.name == "metrics.jsonl":
            rows = [json.loads(line) for line in content.splitlines()]
            rows = [{k: v for k, v in row.items() if k != _SPEED} for row in rows]
            content = json.dumps(rows).encode()
        checksums[name] = hashlib.sha256(content).hexdigest()
    return checksums


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The files that only one has, or that differ."""
    return sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))


def drifted(folder: pathlib.Path, other: pathlib.Path) -> list[str]:
    """The figures of two trainings that differ by more than rounding."""
    one, two = (
        [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (folder, other)
    )
    if [row["step"] for row in one] != [row["step"] for row in two]:
        return ["steps"]
    return [
        f"{name} of step {row['step']}"
        for row, same in zip(one, two, strict=True)
        for name in row
        if name.endswith("loss")
        and not math.isclose(row[name], same[name], rel_tol=_ROUNDING)
    ]


def main(flags: Options) -> None:
    rng = random.Random(flags.seed)
    with tempfile.TemporaryDirectory() as temporary:
        inputs = pathlib.Path(temporary, "inputs")
        inputs.mkdir()
        write_inputs(inputs, flags.size)
        jobs = commands(inputs, flags.size)
        if flags.xla:
            jobs = {k: v + ["--xla"] * ("--do_train" in v) for k, v in jobs.items()}
        for job in ("generation", "dynamic"):
            if any(f"{inputs}/{job}/" in word for j in flags.jobs for word in jobs[j]):
                run(jobs[job], inputs / job)
        for job in flags.jobs:
            hosts = HOSTS.get(job, (1,))
            began = time.monotonic()
            straight = pathlib.Path(temporary, job)
            run(jobs[job], straight, hosts=hosts[0])
            expected = digests(straight / "output")
            duration = time.monotonic() - began
            kills = runs = 0
            wrong = []
            while kills < flags.kills:
                folder = pathlib.Path(temporary, f"{job}-{runs}")
                most = flags.kills - kills
                moments = [random_moment(rng, duration, hosts) for _ in range(most)]
                kills += killed(jobs[job], folder, moments, hosts[0])
                runs += 1
                if len(hosts) == 1:
                    wrong += differing(expected, digests(folder / "output"))
                else:
                    wrong += drifted(straight / "output", folder / "output")
                print(
                    f"{job}: {kills} kills in {runs} runs of {duration:.0f} s, "
                    f"{len(expected)} files each: {len(wrong)} differ {wrong[:5] or ''}",
                    flush=True,
                )


if __name__ == "__main__":
    command_line.run(main, Options)
