"""The teacher of a pre-training: any network that fills masks."""

import dataclasses
import functools

from training.run import checks
from training.run.settle import check_teacher
from training.storage import checkpoint_contents, whole_model
from training.storage.source import Source
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.distillation.distilled_words import DistilledWords
from modeling.objectives.masked_lm import MaskedLMModel
from modeling.objectives.objective import Objective
from modeling.objectives.table import OBJECTIVES
from text.records.record_set import RecordSet
from training.pretraining.objective_choice import check_encoder
from training.pretraining.options import PretrainingOptions

_VOCABULARY = "vocab_sha256"  # of a tokenizer's settings


def check_objective(flags: PretrainingOptions, objective: Objective) -> None:
    """Raises:
    UserError: it has nothing that a teacher could answer, too.
    """
    if flags.distill_from and not objective.comparison:
        fitting = [n for n, kind in OBJECTIVES.items() if kind.load().comparison]
        raise UserError(
            f"--distill_from: --objective={flags.objective} does not learn masked words, "
            f"in which student and teacher are compared; use {' or '.join(fitting)}"
        )


@dataclasses.dataclass(frozen=True)
class WordTeacher:
    """A network that fills masks, with its weights.

    Attributes:
        network, config: of the teacher.
        source: where it is from.
        note: what could not be checked; or nothing.
    """

    network: MaskedLMModel
    config: EncoderConfig
    source: str
    note: str

    @property
    def description(self) -> str:
        number = sum(v.shape.num_elements() for v in self.network.weights)
        kind = self.config.architecture
        return f"the teacher, {self.source}: {kind}, {number:,} weights{self.note}"

    @functools.cached_property
    def digest(self) -> str:
        """Identifies the weights, without the pooler's, which are not loaded."""
        network = self.network
        needed = {
            *network.encoder.required_variables,
            *(v.path for v in network.masked_lm.weights),
        }
        return checkpoint_contents.digest(
            {v.path: v.numpy() for v in network.weights if v.path in needed}
        )

    def distill(
        self, flags: PretrainingOptions, config: EncoderConfig, objective: Objective
    ) -> Objective:
        """The objective of a student with this config.

        Raises:
            UserError: student and teacher cannot be compared.
        """
        # KL is 0 for a perfect student.
        made = DistilledWords(
            objective,
            flags.distillation(default_loss="kl"),
            lambda: self.network,
            self.config,
            flags.distill_tokens,
        )
        teacher = f"--distill_from={flags.distill_from}"
        checks.check_objective(made, config, teacher)
        return made


def find(
    flags: PretrainingOptions, records: RecordSet, config: EncoderConfig
) -> Source:
    """Opens the weights of the teacher that the flags name.

    Args:
        config: of the student.
    Raises:
        UserError: there are none, or they do not fit the student or its records.
    """
    source = Source.open(flags.distill_from)
    flag = f"--distill_from={flags.distill_from}"
    try:
        check_teacher(source, flags)
    except UserError as error:
        raise UserError(f"{flag}: {error}") from error
    own = source.config
    check_encoder(flags, records, own, flag)
    whole_model.check_fills_masks(flag, source, own)
    _check_sizes(flags, source.folder, config, own)
    names = source.shapes()
    has_variables = own.masked_lm.bias is not None
    if has_variables and not any(n.startswith(own.masked_lm.scope) for n in names):
        raise UserError(
            f"{source.prefix}: has no masked-LM head ({own.masked_lm.scope}/...), so it "
            "cannot be the teacher of a pre-training; pass the output_dir of a pre-training"
        )
    return source


def load(
    flags: PretrainingOptions, source: Source, text: dict, strategy
) -> WordTeacher:
    """Loads the teacher.

    Args:
        source: see `find`.
        text: how the student's text became ids, as far as it is known.
        strategy: on whose devices the teacher will be.
    Raises:
        UserError: its text became other ids.
    """
    own = source.config
    note = _check_text(flags, source, text, own)
    with strategy.scope():
        network = whole_model.load_masked_lm(own, source, flags.dtype)
    return WordTeacher(network, own, source.prefix, note)


def _check_sizes(flags: PretrainingOptions, folder, student, teacher):
    if flags.max_seq_length > teacher.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={flags.max_seq_length} is more than "
            f"max_position_embeddings={teacher.max_position_embeddings} of the teacher in "
            f"{folder}; pass that or less"
        )
    if not (student.has_segments and teacher.has_segments):
        return
    if teacher.type_vocab_size < student.type_vocab_size:
        raise UserError(
            f"{folder}: the teacher has type_vocab_size={teacher.type_vocab_size}, less "
            f"than the student's {student.type_vocab_size} in {flags.bert_config_file}"
        )


def _check_text(flags: PretrainingOptions, source: Source, text, config) -> str:
    """Compares vocabularies; returns what to say if one of them is not known."""
    path, teacher_settings = source.text.record
    vocabulary = source.vocabulary
    if _VOCABULARY not in teacher_settings and vocabulary:
        path = vocabulary.path
        teacher_settings = {_VOCABULARY: vocabulary.load(flags).settings[_VOCABULARY]}
        teacher_settings |= source.text.of_weights(vocabulary.kind)
    if _VOCABULARY not in teacher_settings or _VOCABULARY not in text:
        whose = "the records" if _VOCABULARY in teacher_settings else "the teacher"
        return (
            f"; note: nothing says which vocabulary {whose} had, so only vocab_size="
            f"{config.vocab_size} is compared"
        )
    for name, value in text.items():
        if teacher_settings.get(name, value) == value:
            continue
        if name == _VOCABULARY:
            raise UserError(
                f"{path}: the teacher's vocabulary differs from the records'; write "
                "records with the teacher's, or use another teacher"
            )
        raise UserError(
            f"{path}: the teacher was trained with --{name}="
            f"{str(teacher_settings[name]).lower()}, but the records were made with "
            f"{str(value).lower()}; use the same for both"
        )
    return ""
