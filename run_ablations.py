"""Reruns tables of the BERT, RoBERTa and ELECTRA papers, each with one command.

    python run_ablations.py --table=5

This takes 15 to 25 minutes on two cores: its text is the documentation of the installed
Python packages, and its task to predict which package a sentence is from. With your own
text, vocabulary, config and tasks:

    python run_ablations.py --table=5,8,figure5 --output_dir=ablations \\
        --input_file='corpus/*.txt' --held_out_file=held_out.txt \\
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \\
        --tasks=SST-2:glue/SST-2,SQuAD:squad,NER:conll2003 --seeds=1,2,3

Every variant is pre-trained on the same text with the same seeds, and fine-tuned for every
task. The results are in ablations.html and ablations.json, which are updated after every
run, with the papers' numbers next to yours. If it is interrupted, run the same command
again to continue. More tables or seeds in the same folder reuse what is there.
"""

import dataclasses
import os
import shlex
from collections.abc import Mapping

import options
from ablations.tables import TABLES
from errors import UserError
from modeling.architectures.bert_config import BertConfig
from modeling.architectures.config import EncoderConfig
from text.corpus import formats
from text.files import inputs, local
from text.tokenizers.kinds import TokenizerOptions

_MARK = ".ablations~bert~"  # a file that marks the folder as made by this script
_DOCUMENTATION = "text/documentation"
_VOCABULARY = "text/vocabulary"
_NUM_UNUSED = 99  # tokens of a learned vocabulary


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    table: list[str] = options.field(
        help=f"What to compare, comma-separated: {', '.join(TABLES)}. "
        + "; ".join(f"{name}: {table.title}" for name, table in TABLES.items())
        + "."
    )
    output_dir: str = options.field("ablations_output", help="Folder for everything.")
    input_file: list[str] = options.field(
        [],
        help="Text to pre-train on: comma-separated names and globs. By default, the "
        "documentation of the installed Python packages.",
    )
    held_out_file: list[str] = options.field(
        [], help="Text to evaluate pre-training on; table 6 needs it."
    )
    input_format: str = options.field(
        "sentences",
        choices=formats.FORMATS,
        help="The form of the text, as for create_pretraining_data.py.",
    )
    vocab_file: str | None = options.field(
        None, help="The vocabulary. By default, one is learned from the text."
    )
    vocab_size: int = options.field(8000, help="Size of a learned vocabulary.")
    bert_config_file: str | None = options.field(
        None,
        help="The encoder that the tables vary. By default, 4 layers of 128.",
    )
    tasks: list[str] = options.field(
        [],
        help="What to fine-tune for: NAME:FOLDER, comma-separated. NAME is one of GLUE's, "
        "SQuAD, SQuAD2 (a folder with train*.json and dev*.json), NER (train.txt and "
        "dev.txt), or custom (train.tsv and dev.tsv, with columns text and label). By "
        "default, to predict the package of a sentence of the documentation.",
    )
    seeds: list[int] = options.field(
        [1], help="Each variant is pre-trained once per seed."
    )
    num_trials: int = options.field(
        3, help="Fine-tuning runs per task and pre-trained encoder, with other seeds."
    )
    num_train_steps: int = options.field(
        1200, help="Pre-training updates; a tenth of them is warm-up."
    )
    max_seq_length: int = options.field(
        64, help="Tokens per row, for all scripts.", most=options.MOST_TOKENS
    )
    max_predictions_per_seq: int = options.field(
        10, help="Maximum number of masked tokens per row."
    )
    records_flags: str = options.field(
        "--dupe_factor=5",
        help="Flags for create_pretraining_data.py, separated by spaces. As in all flags "
        "that end in _flags, what you pass replaces the default.",
    )
    pretraining_flags: str = options.field(
        "--train_batch_size=32 --learning_rate=5e-4",
        help="Flags for run_pretraining.py.",
    )
    classifier_flags: str = options.field(
        "--learning_rate=3e-4 --num_train_epochs=10 --eval_batch_size=32",
        help="Flags for run_classifier.py.",
    )
    squad_flags: str = options.field(
        "--learning_rate=3e-4 --num_train_epochs=2 --max_query_length=24 --doc_stride=32",
        help="Flags for run_squad.py.",
    )
    ner_flags: str = options.field(
        "--learning_rate=3e-4 --num_train_epochs=3", help="Flags for run_ner.py."
    )
    features_flags: str = options.field(
        "--learning_rate=1e-3",
        help="Flags for run_ner.py where the encoder is frozen, besides --ner_flags.",
    )
    jobs: int = options.field(
        1, help="Number of processes at a time; they share the cores.", most=4096
    )
    dry_run: bool = options.field(
        False,
        help="Only list the commands that would run, say what is known of the time that "
        "they take, and write nothing.",
    )

    def __post_init__(self):
        if not self.table or set(self.table) - set(TABLES):
            raise UserError(
                f"--table={','.join(self.table)}: must be any of {', '.join(TABLES)}"
            )
        for name in ("table", "seeds", "tasks"):
            given = getattr(self, name)
            for item in given:
                if given.count(item) > 1:
                    raise UserError(f"--{name}: {item} is repeated")
        if not self.seeds or min(self.seeds) < 0 or max(self.seeds) >= 1000:
            raise UserError("--seeds: must be whole numbers from 0 to 999")
        for name in ("num_trials", "num_train_steps", "jobs", "vocab_size"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name}={getattr(self, name)}: must be at least 1")
        if self.held_out_file and not self.input_file:
            raise UserError("--held_out_file needs --input_file")
        if self.tasks and not self.input_file:
            raise UserError(
                "--tasks needs --input_file: pass text that the tasks' texts are like"
            )
        if not self.output_dir or set(self.output_dir) & set("*?[],"):
            raise UserError(
                f"--output_dir={self.output_dir}: must not be empty or contain any of "
                "* ? [ ] ,"
            )
        if self.input_file and not self.tasks:
            raise UserError("--input_file needs --tasks, such as SST-2:glue/SST-2")

    def text_flags(self) -> dict:
        """The flags of the tokenizer that differ from their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(TokenizerOptions)
            if getattr(self, field.name) != field.default
        }


if __name__ == "__main__":
    options.parse(Options)  # --help and mistakes are answered before TensorFlow loads

from training.run import checks
from training.storage import checkpoint
from ablations import cells, page, plan, tasks


def main(given: Options) -> int:
    planned = make_plan(given)
    root = given.output_dir
    if given.dry_run:
        return _tell_needs(given, planned)
    local.take_folder(root, _MARK)
    with local.locked(os.path.join(root, _MARK)):
        results, failures = _run(given, planned)
        if not planned.is_whole and not failures:
            planned = make_plan(given, results.cells)
            results, failures = _run(given, planned)
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


def _tell_needs(given: Options, planned: plan.Plan) -> int:
    """Prints what --dry_run asks for."""
    known = cells.all_finished(given.output_dir, planned.cells)
    left = [cell for cell in planned.cells if cell.name not in known]
    cells.check_flags(given.output_dir, left)
    for cell in left:
        print(f"{cell.name}: {shlex.join(cell.command(given.output_dir)[1:])}")
    more = "" if planned.is_whole else ", and more once their speed is known"
    print(
        f"{len(planned.cells)} cells{more}; {len(known)} of them have finished\n"
        f"the run: {cells.time_left(left, planned.cells, known, given.jobs)}"
    )
    return 0


def _run(given: Options, planned: plan.Plan) -> tuple[page.Results, list[str]]:
    """Runs what has not finished; returns all results, and a line for each failure."""
    root = given.output_dir
    known = cells.all_finished(root, planned.cells)
    cells.check_flags(root, [c for c in planned.cells if c.name not in known])
    write_configs(root, planned)
    results = page.Results(root, planned, _facts(given))
    results.cells.update(known)
    results.write()

    def record(cell, done):
        results.cells[cell.name] = done
        results.write()

    more = "" if planned.is_whole else ", and more once their speed is known"
    print(
        f"{len(planned.cells)} cells{more}; results appear in "
        f"{os.path.join(root, page.PAGE)}. If this is interrupted, run the same "
        "command again to continue.",
        flush=True,
    )
    return results, cells.Runner(root, given.jobs, record).run(planned.cells, known)


def make_plan(given: Options, finished: Mapping[str, Mapping] = {}) -> plan.Plan:
    """What to run for these flags.

    Args:
        finished: the content of the cell.json of cells that have one, by name.
    Raises:
        UserError: a file is missing, or a table cannot be filled from them.
    """
    sources = _sources(given)
    planner = plan.Planner(given, _config(given), _tasks(given), sources, finished)
    return planner.plan(given.table)


def _tasks(given: Options) -> list[tasks.Task]:
    found = [tasks.read_task(item) for item in given.tasks]
    titles = [task.title.lower() for task in found]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"--tasks: two tasks are named {title}; rename a folder")
    return found or [
        tasks.Task(
            "package",
            "classification",
            "run_classifier.py",
            {
                "task_name": "custom",
                "data_dir": f"{{root}}/{_DOCUMENTATION}/{cells.OUTPUT}/packages",
            },
            "eval_accuracy",
        )
    ]


def _sources(given: Options) -> plan.Sources:
    """Text and vocabulary, as given or made from the installed packages."""
    made = []
    train, held_out = given.input_file, given.held_out_file
    for patterns in filter(None, (train, held_out)):
        inputs.expand(patterns)  # finds out now whether there are such files
    if not train:
        output = f"{{root}}/{_DOCUMENTATION}/{cells.OUTPUT}"
        train, held_out = [f"{output}/train.txt"], [f"{output}/held_out.txt"]
        flags = {
            "output_file": train[0],
            "held_out_file": held_out[0],
            "package_dir": f"{output}/packages",
        }
        made.append(_text_cell(_DOCUMENTATION, "collect_documentation.py", flags))
    vocabulary = given.vocab_file
    if vocabulary is not None:
        end_id = given.load_tokenizer(vocabulary).vocabulary.end_id
    else:
        end_id = _NUM_UNUSED + 3  # behind [PAD], these, [UNK] and [CLS]
        vocabulary = f"{{root}}/{_VOCABULARY}/{cells.OUTPUT}/vocab.txt"
        flags = {
            "input_file": ",".join(train),
            "output_file": vocabulary,
            "vocab_size": given.vocab_size,
            "num_unused": _NUM_UNUSED,
            "input_format": given.input_format,
            **given.text_flags(),
        }
        needs = tuple(cell.name for cell in made)
        made.append(_text_cell(_VOCABULARY, "build_vocab.py", flags, needs))
    return plan.Sources(train, held_out, vocabulary, end_id, made)


def _text_cell(name, script, flags, needs=()):
    return cells.Cell(name, script, tuple(options.words(**flags)), name, needs)


def _config(given: Options) -> EncoderConfig:
    vocabulary = None
    if given.vocab_file:
        vocabulary = given.load_tokenizer(given.vocab_file).vocabulary
    if given.bert_config_file is None:
        config = BertConfig(
            vocab_size=len(vocabulary) if vocabulary else given.vocab_size,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=512,
            # A run this short is far from memorizing its text.
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=max(given.max_seq_length, 128),
            type_vocab_size=2,
        )
    else:
        config = checkpoint.read_config(given.bert_config_file)
        _check_config(given, config)
    if vocabulary:
        checks.check_vocabulary(vocabulary, config, given.bert_config_file)
    if given.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={given.max_seq_length}: the config has only "
            f"{config.max_position_embeddings} positions"
        )
    return config


def _check_config(given, config):
    """Refuses configs of which the tables' rows would not be what they say."""
    if config.attention_direction == "none":
        raise UserError(
            f"{given.bert_config_file}: the tables pre-train encoders whose positions see "
            f"each other, unlike those of {config.architecture!r}; use another architecture"
        )
    if config.attention_direction != "both" or config.row_pooling != "first":
        raise UserError(
            f"{given.bert_config_file}: sets attention_direction or pooling, which the "
            "tables set themselves; remove them"
        )
    if given.vocab_file:
        return
    # build_vocab.py begins with [PAD].
    checks.check_padding("the learned vocabulary", 0, config, given.bert_config_file)
    if given.vocab_size > config.vocab_size:
        raise UserError(
            f"--vocab_size={given.vocab_size}: more than vocab_size={config.vocab_size} of "
            f"{given.bert_config_file}"
        )


def write_configs(root: str, planned: plan.Plan) -> None:
    """Writes the variants' configs.

    Raises:
        UserError: the folder has others, with which encoders may have been trained.
    """
    os.makedirs(os.path.join(root, "configs"), exist_ok=True)
    for name, config in planned.configs.items():
        path = os.path.join(root, "configs", f"{name}.json")
        if not os.path.exists(path):
            with local.replacing(path, "w") as file:
                file.write(config.to_json_string())
        elif checkpoint.read_config(path) != config:
            raise UserError(
                f"{path}: differs from what --bert_config_file, --vocab_file, "
                "--vocab_size and --max_seq_length ask for now; choose another "
                "--output_dir"
            )


def _facts(given: Options) -> dict[str, str]:
    """The scale of these runs."""
    text = given.input_file or ["documentation of the installed Python packages"]
    return {
        "pre-training text": ", ".join(text),
        "vocabulary": given.vocab_file or f"{given.vocab_size:,} pieces, learned",
        "config": given.bert_config_file or "4 layers of 128 with 4 heads",
        "updates": f"{given.num_train_steps:,}",
        "tokens per row": f"{given.max_seq_length}",
        "records": given.records_flags,
        "pre-training": given.pretraining_flags,
        "pre-trainings of each variant": f"{len(given.seeds)}",
        "fine-tuning runs of each": f"{given.num_trials}",
    }


if __name__ == "__main__":
    options.run(main, Options)
