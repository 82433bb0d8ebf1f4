"""Reruns tables of the BERT, RoBERTa and ELECTRA papers, each with one command.

    python -m recipes.ablations --table=5

This takes 15 to 25 minutes on two cores: its text is the documentation of the installed
Python packages, and its task to predict which package a sentence is from. With your own
text, vocabulary, config and tasks:

    python -m recipes.ablations --table=5,8,figure5 --output_dir=ablations \\
        --input_file='corpus/*.txt' --held_out_file=held_out.txt \\
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \\
        --tasks=SST-2:glue/SST-2,SQuAD:squad,NER:conll2003 --seeds=1,2,3

Every variant is pre-trained on the same text with the same seeds, and fine-tuned for every
task. The results are in ablations.html and ablations.json, which are updated after every
run, with the papers' numbers next to yours. If it is interrupted, run the same command
again to continue. More tables or seeds in the same folder reuse what is there.
"""

import os
import shlex
from collections.abc import Mapping

import command_line
from recipes.comparisons.options import Options

# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

import options
from training.run import checks
from training.storage.source import read_config
from errors import UserError, duration
from files import inputs, local
from modeling.architectures.bert import BertConfig
from modeling.architectures.config import EncoderConfig
from recipes.comparisons import cells, fine_tunings, page, plan

_MARK = ".ablations~bert~"  # a file that marks the folder as made by this script
_DOCUMENTATION = "text/documentation"
_VOCABULARY = "text/vocabulary"
_NUM_UNUSED = 99  # tokens of a learned vocabulary


def main(flags: Options) -> int:
    planned = make_plan(flags)
    root = flags.output_dir
    if flags.dry_run:
        return _tell_needs(flags, planned)
    local.take_folder(root, _MARK)
    with local.hold_lock(os.path.join(root, _MARK)):
        results, failures = _run(flags, planned)
        if not planned.is_whole and not failures:
            planned = make_plan(flags, results.cells)
            results, failures = _run(flags, planned)
    print("\n".join(page.console(results.write())))
    if not planned.is_whole and not failures:
        raise UserError(
            f"{root}: its pre-trainings did not note their speed, from which the columns "
            "of the same time follow; choose another --output_dir"
        )
    if failures:
        raise UserError(
            f"{len(failures)} of {len(planned.cells)} cells failed or were not run; the "
            f"first: {failures[0]}; run the same command again to retry"
        )
    print(f"\nWritten to {os.path.join(root, page.PAGE)} and {page.JSON}")
    return 0


def _check_left(flags: Options, planned: plan.Plan) -> dict[str, dict]:
    """Has the scripts check the flags of what is left; returns what has finished."""
    finished = cells.all_finished(flags.output_dir, planned.cells)
    left = [cell for cell in planned.cells if cell.name not in finished]
    cells.check_flags(flags.output_dir, left)
    return finished


def _number_of(planned: plan.Plan) -> str:
    more = "" if planned.is_whole else ", and more once their speed is known"
    return f"{len(planned.cells)} cells{more}"


def _tell_needs(flags: Options, planned: plan.Plan) -> int:
    """Prints what --dry_run asks for."""
    finished = _check_left(flags, planned)
    left = [cell for cell in planned.cells if cell.name not in finished]
    for cell in left:
        print(f"{cell.name}: {shlex.join(cell.command(flags.output_dir)[1:])}")
    seconds, unknown = cells.time_left(left, planned.cells, finished, flags.jobs)
    estimates = [f"about {duration(seconds)}"] if seconds or not unknown else []
    if unknown:
        estimates.append(
            f"the time of {unknown} cells is known once one of their kind has finished"
        )
    print(
        f"{_number_of(planned)}; {len(finished)} of them have finished\n"
        f"the run: {' and more; '.join(estimates)}"
    )
    return 0


def _run(flags: Options, planned: plan.Plan) -> tuple[page.Results, list[str]]:
    """Runs what has not finished; returns all results, and a line for each failure."""
    root = flags.output_dir
    finished = _check_left(flags, planned)
    write_configs(root, planned)
    results = page.Results(root, planned, _facts(flags, planned))
    results.cells.update(finished)
    results.write()

    def record(cell, done):
        results.cells[cell.name] = done
        results.write()

    print(
        f"{_number_of(planned)}; results appear in {os.path.join(root, page.PAGE)}. If "
        "this is interrupted, run the same command again to continue.",
        flush=True,
    )
    return results, cells.Runner(root, flags.jobs, record).run(planned.cells, finished)


def make_plan(flags: Options, finished: Mapping[str, Mapping] = {}) -> plan.Plan:
    """What to run for these flags.

    Args:
        finished: the content of the cell.json of cells that have one, by name.
    """
    sources = _sources(flags)
    planner = plan.Planner(flags, _config(flags), _tasks(flags), sources, finished)
    return planner.plan(flags.table)


def _tasks(flags: Options) -> list[fine_tunings.DownstreamTask]:
    if not flags.tasks:
        packages = f"{cells.output_of(_DOCUMENTATION)}/packages"
        return [fine_tunings.custom("package", packages)]
    chosen = [fine_tunings.read_task(item) for item in flags.tasks]
    titles = [task.title.lower() for task in chosen]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"--tasks: two tasks are named {title}; rename a folder")
    return chosen


def _sources(flags: Options) -> plan.Sources:
    """Text and vocabulary, as given or made from the installed packages."""
    made = []
    train, held_out = flags.input_file, flags.held_out_file
    for patterns in filter(None, (train, held_out)):
        inputs.expand(patterns)  # finds out now whether there are such files
    if not train:
        output = cells.output_of(_DOCUMENTATION)
        train, held_out = [f"{output}/train.txt"], [f"{output}/held_out.txt"]
        made.append(
            _text_cell(
                _DOCUMENTATION,
                "recipes/collect_documentation.py",
                output_file=train[0],
                held_out_file=held_out[0],
                package_dir=f"{output}/packages",
            )
        )
    if flags.vocab_file is not None:
        end_id = flags.load_tokenizer(flags.vocab_file).vocabulary.end_id
        return plan.Sources(train, held_out, flags.vocab_file, end_id, made)
    vocabulary = f"{cells.output_of(_VOCABULARY)}/vocab.txt"
    learning = _text_cell(
        _VOCABULARY,
        "build_vocab.py",
        needs=tuple(cell.name for cell in made),
        input_file=train,
        output_file=vocabulary,
        vocab_size=flags.vocab_size,
        num_unused=_NUM_UNUSED,
        input_format=flags.input_format,
        **flags.text_flags(),
    )
    end_id = _NUM_UNUSED + 3  # behind [PAD], these, [UNK] and [CLS]
    return plan.Sources(train, held_out, vocabulary, end_id, [*made, learning])


def _text_cell(name, script, needs=(), **words):
    return cells.Cell(name, script, tuple(options.words(**words)), name, needs)


def _config(flags: Options) -> EncoderConfig:
    vocabulary = None
    if flags.vocab_file:
        vocabulary = flags.load_tokenizer(flags.vocab_file).vocabulary
    if flags.bert_config_file is None:
        config = BertConfig(
            vocab_size=len(vocabulary) if vocabulary else flags.vocab_size,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=512,
            # A run this short is far from memorizing its text.
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=max(flags.max_seq_length, 128),
            type_vocab_size=2,
        )
    else:
        config = read_config(flags.bert_config_file)
        _check_config(flags, config)
    if vocabulary:
        checks.check_vocabulary(vocabulary, config, flags.bert_config_file)
    if flags.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={flags.max_seq_length}: the config has only "
            f"{config.max_position_embeddings} positions"
        )
    return config


def _check_config(flags: Options, config: EncoderConfig):
    """Refuses configs with which the tables' rows would not be what they say."""
    if config.attention_direction == "none":
        raise UserError(
            f"{flags.bert_config_file}: the tables pre-train encoders whose positions see "
            f"each other, unlike those of {config.architecture!r}; use another architecture"
        )
    if config.attention_direction != "both" or config.row_pooling != "first":
        raise UserError(
            f"{flags.bert_config_file}: sets attention_direction or pooling, which the "
            "tables set themselves; remove them"
        )
    if flags.vocab_file:
        return
    # build_vocab.py begins with [PAD].
    checks.check_padding("the learned vocabulary", 0, config, flags.bert_config_file)
    if flags.vocab_size > config.vocab_size:
        raise UserError(
            f"--vocab_size={flags.vocab_size}: more than vocab_size={config.vocab_size} of "
            f"{flags.bert_config_file}"
        )


def write_configs(root: str, planned: plan.Plan) -> None:
    """Writes the variants' configs."""
    os.makedirs(os.path.join(root, "configs"), exist_ok=True)
    for name, config in planned.configs.items():
        path = os.path.join(root, "configs", f"{name}.json")
        if not os.path.exists(path):
            with local.replacing(path, "w") as file:
                file.write(config.to_json_string())
        elif read_config(path) != config:
            raise UserError(
                f"{path}: differs from what --bert_config_file, --vocab_file, "
                "--vocab_size and --max_seq_length ask for now; choose another "
                "--output_dir"
            )


def _facts(flags: Options, planned: plan.Plan) -> dict[str, str]:
    """The scale of these runs."""
    text = flags.input_file or ["documentation of the installed Python packages"]
    return {
        "pre-training text": ", ".join(text),
        "vocabulary": flags.vocab_file or f"{flags.vocab_size:,} pieces, learned",
        "config": flags.bert_config_file or "4 layers of 128 with 4 heads",
        "updates": f"{flags.num_train_steps:,}",
        "tokens per row": f"{flags.max_seq_length}",
        "pre-trainings of each variant": f"{len(flags.seeds)}",
        "fine-tuning runs of each": f"{flags.num_trials}",
        **{
            passed.removesuffix("_flags"): getattr(flags, passed)
            for cell in planned.cells
            for passed in cell.passed
        },
    }


if __name__ == "__main__":
    command_line.run(main, Options)
