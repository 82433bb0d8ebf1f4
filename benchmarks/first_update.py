"""Runs run_pretraining.py up to its first update, for `benchmarks.start`.

    PYTHONPATH=CHECKOUT python -P benchmarks/first_update.py FOLDER MILLISECONDS --flag=...

It measures whichever checkout PYTHONPATH names. Each operation on a file in the folder
takes the milliseconds longer. It prints how many there were.
"""

import importlib.util
import os
import pathlib
import sys

import command_line
import run_pretraining
from training.run import loop

_RECORDER = pathlib.Path(__file__).parent.parent / "tests" / "file_operations.py"


def main(folder: str, milliseconds: str, *words: str) -> None:
    spec = importlib.util.spec_from_file_location("file_operations", _RECORDER)
    file_operations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file_operations)
    root = os.path.dirname(os.path.abspath(run_pretraining.__file__))
    run_updates = loop.Trainer.run_updates
    delay = float(milliseconds) / 1e3
    with file_operations.recorded(folder, root, delay) as operations:

        def stop_after_one(trainer, batches, count):
            number = len(operations)
            run_updates(trainer, batches, 1)
            print(f"updated after {number} operations", flush=True)
            os._exit(0)

        loop.Trainer.run_updates = stop_after_one
        sys.argv = ["run_pretraining.py", *words]
        command_line.run(run_pretraining.main, run_pretraining.Options)


if __name__ == "__main__":
    main(*sys.argv[1:])
