"""Measures memory and time of an update with and without --recompute.

python -m benchmarks.recompute --num_hidden_layers=12 --hidden_size=768 --batch_size=8
"""

import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import time

import command_line
import options


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    num_hidden_layers: int = options.field(12, help="Layers.")
    hidden_size: int = options.field(768, help="Width; 64 per attention head.")
    vocab_size: int = options.field(30522, help="Size of the vocabulary.")
    batch_size: int = options.field(8, help="Examples per update.")
    max_seq_length: int = options.field(512, help="Tokens per example.")
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    updates: int = options.field(3, help="Updates timed, after a first.")
    rounds: int = options.field(1, help="How often each way has its turn.")
    measure: str = options.field("", help="Used by the processes that it starts.")


def measured(chosen: Options, recompute: bool) -> dict:
    """Runs updates in this process; its peak memory in bytes and seconds per update."""
    from benchmarks import training

    names = {field.name for field in dataclasses.fields(training.Options)}
    flags = dataclasses.asdict(chosen)
    sizes = training.Options(**{name: flags[name] for name in names & flags.keys()})
    update = training.updater(sizes, chosen.dtype, False, recompute, warm_up=1)
    seconds = []
    for _ in range(chosen.updates):
        began = time.perf_counter()
        update()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"bytes": peak, "seconds": statistics.median(seconds)}


def main(chosen: Options) -> None:
    """Prints the table; each figure is from a process of its own."""
    if chosen.measure:
        print(json.dumps(measured(chosen, chosen.measure == "recompute")))
        return
    flags = dataclasses.asdict(chosen)
    del flags["measure"]
    figures_by_way = {"plain": [], "recompute": []}
    for _ in range(chosen.rounds):
        for way, figures in figures_by_way.items():
            line = [sys.executable, "-m", "benchmarks.recompute"]
            line += options.words(**flags, measure=way)
            output = subprocess.check_output(line, text=True)
            figures.append(json.loads(output.splitlines()[-1]))
    print(f"{'':10} {'GB':>6} {'s/update':>9}")
    for way, figures in figures_by_way.items():
        gigabytes = max(figure["bytes"] for figure in figures) / 1e9
        seconds = statistics.median(figure["seconds"] for figure in figures)
        print(f"{way:10} {gigabytes:6.2f} {seconds:9.2f}")


if __name__ == "__main__":
    command_line.run(main, Options)
