"""The flags of recipes.ablations."""

import dataclasses

import options
from errors import UserError
from recipes.comparisons.paper_tables import TABLES
from text.corpus import formats
from text.tokenizers.table import TokenizerOptions


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    table: list[str] = options.field(
        help=f"What to compare, comma-separated: {', '.join(TABLES)}. "
        + "; ".join(f"{name}: {table.title}" for name, table in TABLES.items())
        + ".",
        distinct=True,
    )
    output_dir: str = options.field("ablations_output", help="Folder for everything.")
    input_file: list[str] = options.field(
        [],
        help="Text to pre-train on: comma-separated names and globs. By default, the "
        "documentation of the installed Python packages.",
    )
    held_out_file: list[str] = options.field(
        [],
        help="Text to evaluate pre-training on; table 6 needs it.",
        only_for={"input_file": options.GIVEN},
    )
    input_format: str = options.field(
        "sentences",
        choices=formats.FORMATS,
        help="The form of the text, as for create_pretraining_data.py.",
    )
    vocab_file: str | None = options.field(
        None, help="The vocabulary. By default, one is learned from the text."
    )
    vocab_size: int = options.field(
        8000, help="Size of a learned vocabulary.", at_least=1, below=2**31
    )
    bert_config_file: str | None = options.field(
        None,
        help="The encoder that the tables vary. By default, 4 layers of 128.",
    )
    tasks: list[str] = options.field(
        [],
        help="What to fine-tune for: NAME:FOLDER, comma-separated. NAME is one of GLUE's, "
        "SQuAD, SQuAD2 (a folder with train*.json and dev*.json), NER (train.txt and "
        "dev.txt), UD (*train*.conllu and *dev*.conllu, for parts of speech), or custom "
        "(train.tsv and dev.tsv, with columns text and label). By default, to predict the "
        "package of a sentence of the documentation.",
        distinct=True,
    )
    seeds: list[int] = options.field(
        [1],
        help="Each variant is pre-trained once per seed.",
        at_least=0,
        below=1000,
        distinct=True,
    )
    num_trials: int = options.field(
        3,
        help="Fine-tuning runs per task and pre-trained encoder, with other seeds.",
        at_most=1000,
        at_least=1,
    )
    num_train_steps: int = options.field(
        1200,
        help="Pre-training updates; a tenth of them is warm-up.",
        at_most=2**31 - 1,
        at_least=1,
    )
    max_seq_length: int = options.field(
        64,
        help="Tokens per row, for all scripts.",
        at_most=options.MOST_TOKENS,
        at_least=8,
    )
    max_predictions_per_seq: int = options.field(
        10,
        help="Maximum number of masked tokens per row.",
        at_most=options.MOST_TOKENS,
        at_least=1,
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
        1,
        help="Number of processes at a time; they share the cores.",
        at_most=4096,
        at_least=1,
    )
    dry_run: bool = options.field(
        False,
        help="Only list the commands that would run, say what is known of the time that "
        "they take, and write nothing.",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.table or set(self.table) - set(TABLES):
            raise UserError(
                f"--table={','.join(self.table)}: must be any of {', '.join(TABLES)}"
            )
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
