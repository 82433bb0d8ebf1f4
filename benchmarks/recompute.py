"""Measures memory and time of an update with and without --recompute.

python -m benchmarks.recompute --num_hidden_layers=12 --hidden_size=768 --batch_size=8
"""

import dataclasses
import json
import resource
import statistics
import time

import command_line
import options
from benchmarks import flop, turns


@dataclasses.dataclass(frozen=True)
class Options(flop.Sizes):
    num_hidden_layers: int = options.override(flop.Sizes, "num_hidden_layers", 12)
    hidden_size: int = options.override(flop.Sizes, "hidden_size", 768)
    batch_size: int = options.override(flop.Sizes, "batch_size", 8)
    max_seq_length: int = options.override(flop.Sizes, "max_seq_length", 512)
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    updates: int = options.field(3, help="Updates timed, after a first.")
    rounds: int = options.field(1, help="How often each way has its turn.")
    measure: str = options.field("", help="Used by the processes that it starts.")


def measured(chosen: Options, recompute: bool) -> dict:
    """Runs updates in this process; its peak memory in bytes and seconds per update."""
    from benchmarks import training

    update = training.updater(chosen, chosen.dtype, False, recompute, warm_up=1)
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
    systems = {}
    for way in ("plain", "recompute"):
        line = turns.command("benchmarks.recompute", chosen, measure=way)
        systems[way] = turns.Command(line, turns.last_json)
    figures_by_way = turns.take(systems, chosen.rounds)
    print(f"{'':10} {'GB':>6} {'s/update':>9}")
    for way, figures in figures_by_way.items():
        seconds = statistics.median(figure["seconds"] for figure in figures)
        print(f"{way:10} {turns.peak(figures):>6} {seconds:9.2f}")


if __name__ == "__main__":
    command_line.run(main, Options)
