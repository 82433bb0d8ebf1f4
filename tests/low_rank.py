"""What is expected of a run with --lora_rank, whatever the network."""

import pathlib
import shutil
from collections.abc import Callable, Collection

import numpy as np

from training.storage import adapters, loading
from training.storage.source import Source
from tests import jobs

FLAGS = {"lora_rank": 2, "lora_alpha": 6.0}
# Three updates on 160 rows.
SHORT = {"num_train_epochs": [0.15], "save_checkpoints_steps": 2}
SHORT |= {"learning_rate": [0.1], "eval_batch_size": 160}


def check_run(
    folder: pathlib.Path, run: Callable, layers: Collection[str], **more
) -> None:
    """Adapters of these dense layers are trained, kept alone, resumed, merged.

    Args:
        folder: of the run, which goes to output/, and of its base, model.ckpt-best.
        run: takes flags; saves step 2, and goes on behind it.
        layers: their paths.
        more: what else the first run does.
    """
    run(do_train=True, do_eval=True, **FLAGS, **more)
    stored = Source.open(str(folder / "output")).format.read()
    names = {f"{layer}/lora_kernel_{side}" for layer in layers for side in "ab"}
    base = Source.open(str(folder / "model.ckpt-best")).read()
    assert {n for n in stored if loading.is_adapter(n) and "/adam_" not in n} == names
    assert not base.keys() & stored.keys()
    # A resume ends with the same bits.
    shutil.copytree(folder / "output", folder / "other")
    jobs.forget_after(2, folder, "other")
    run(**FLAGS, output_dir=str(folder / "other"), do_train=True)
    again = Source.open(str(folder / "other")).format.read()
    jobs.check_same_bits(again, stored)
    # Read as a whole, the adapted kernels differ from those of the base, and nothing else.
    whole = Source.open(str(folder / "output")).read()
    kernels = {adapters.kernel_of(layer, base) for layer in layers}
    assert {n for n in base if np.any(whole[n] != base[n])} == kernels
    before = jobs.results(folder)
    run(do_eval=True)
    after = jobs.results(folder)
    assert {k: round(v, 5) for k, v in after.items()} == {
        k: round(v, 5) for k, v in before.items()
    }
