"""Fine-tunes pre-trained models for the tasks that BERT is known for, and compares them.

    python -m recipes.suite --init_checkpoint=uncased_L-12_H-768_A-12 --glue_dir=glue \\
        --tasks=SQuAD:squad,SQuAD2:squad2,SWAG:swag

The scores are in suite.html and suite.json, next to those of the BERT paper's tables 1 to 4
(arXiv:1810.04805), and are updated after every task. Each task of GLUE is trained with each
setting of the paper's search, and the best on the dev set answers the test set: the answers
are in glue_submission.zip, as gluebenchmark.com takes them. If it is interrupted, run the
same command again to continue.

Models are compared by a list of --init_checkpoint. With --quick, each task is trained once.
"""

import dataclasses
import os
import shlex

import command_line
import options
from errors import UserError

_MARK = ".suite~bert~"  # a file that marks the folder as made by this script


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    init_checkpoint: list[str] = options.field(
        help="The models to fine-tune, comma-separated: folders, or whatever other scripts "
        "start from. The vocabulary and the config are next to the weights.",
        distinct=True,
    )
    tasks: list[str] = options.field(
        [],
        help="What to fine-tune for: NAME:FOLDER, comma-separated. NAME is one of GLUE's, "
        "SuperGLUE's (BoolQ, CB, COPA, MultiRC, superglue_rte, WiC) or the Korean tasks, "
        "AX (answered by the model of MNLI), SQuAD, SQuAD2 (a folder with train*.json and "
        "dev*.json), SWAG (train.csv and val.csv), RACE (folders train and dev), NER "
        "(train.txt and dev.txt), UD (*train*.conllu and *dev*.conllu), or custom "
        "(train.tsv and dev.tsv, with columns text and label).",
        distinct=True,
    )
    glue_dir: str | None = options.field(
        None,
        help="A folder with those of all tasks of GLUE: CoLA, SST-2, MRPC, STS-B, QQP, "
        "MNLI, QNLI, RTE and diagnostic. WNLI is not trained, as in the paper.",
    )
    output_dir: str = options.field("suite_output", help="Folder for everything.")
    quick: bool = options.field(
        False,
        help="Train each task with one setting: batch 32, 3e-5, 3 epochs. Otherwise, 16 "
        "and 32, 2e-5, 3e-5 and 5e-5, 2, 3 and 4 epochs are searched, as in the paper. "
        "SQuAD and SWAG are always trained with the paper's one setting.",
    )
    num_trials: int = options.field(
        1,
        help="Seeds of each setting; deviations are between them.",
        at_most=10_000,
        at_least=1,
    )
    from_mnli: bool = options.field(
        False, help="Begin RTE, MRPC and STS-B with the encoder trained for MNLI."
    )
    random_baseline: bool = options.field(
        False, help="Also train the first model's config from random weights."
    )
    classifier_flags: str = options.field(
        "",
        help="Flags for run_classifier.py, separated by spaces, in place of the above.",
    )
    squad_flags: str = options.field("", help="Flags for run_squad.py, likewise.")
    swag_flags: str = options.field("", help="Flags for run_swag.py, likewise.")
    ner_flags: str = options.field("", help="Flags for run_ner.py, likewise.")
    jobs: int = options.field(
        1,
        help="Number of processes at a time; they share the cores.",
        at_most=4096,
        at_least=1,
    )
    dry_run: bool = options.field(
        False, help="Only list the commands that would run, and write nothing."
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.tasks and not self.glue_dir:
            raise UserError("nothing to do; pass --tasks or --glue_dir")
        if not self.output_dir:
            raise UserError("--output_dir: is empty; name a folder")


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from files import local
from recipes.comparisons import cells, suite_page, suite_plan


def main(flags: Options) -> int:
    planned = suite_plan.plan(flags)
    root = flags.output_dir
    finished = cells.all_finished(root, planned.cells)
    left = [cell for cell in planned.cells if cell.name not in finished]
    for cell in left:  # a flag may fit one task and not another
        cells.check_flags(root, [cell])
    if flags.dry_run:
        for cell in left:
            print(f"{cell.name}: {shlex.join(cell.command(root)[1:])}")
        print(f"{len(planned.cells)} cells; {len(finished)} of them have finished")
        return 0
    local.take_folder(root, _MARK)
    with local.hold_lock(os.path.join(root, _MARK)):
        suite_plan.write_configs(root, planned)
        results = suite_page.SuiteResults(root, planned)
        results.cells.update(finished)
        results.write()
        print(
            f"{len(planned.cells)} cells; scores appear in "
            f"{os.path.join(root, suite_page.PAGE)}. If this is interrupted, run the same "
            "command again to continue.",
            flush=True,
        )

        def record(cell, done):
            results.cells[cell.name] = done
            results.write()

        failures = cells.Runner(root, flags.jobs, record).run(planned.cells, finished)
        lines = results.write()
    print("\n".join(lines))
    if failures:
        raise UserError(
            f"{len(failures)} of {len(planned.cells)} cells failed or were not run; the "
            f"first: {failures[0]}; run the same command again to retry"
        )
    return 0


if __name__ == "__main__":
    command_line.run(main, Options)
