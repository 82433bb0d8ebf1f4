"""The teacher of a distillation: a model of the same task, or the answers that it left."""

import abc
import collections
import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator

import options
from training.backend import tf
from training.distillation import answer_files, teacher_folder
from training.run import checks, distribution
from training.storage import checkpoint, exported, run_folder
from errors import UserError
from modeling.distillation.distilled import Distilled
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives.objective import Objective
from text.tokenizers import kinds
from text.tokenizers.kinds import TokenizerOptions
from training.finetuning.comparison import TEACHER, Model
from training.finetuning.experiment import Experiment
from training.finetuning.trials import every_trial
from training.interchange import (
    hugging_face,
    hugging_face_task,
    hugging_face_tokenizers,
)

FOLDER = run_folder.TEACHER  # its rows and answers
_ANSWERS = "answers" + answer_files.SUFFIX  # there
_EXAMPLES = "examples_sha256"  # in the note of answers


def of(student: Experiment) -> "Teacher":
    """The teacher that the flags name; tells the student's task what it learned.

    Raises:
        UserError: there is none, or it does not fit the student.
    """
    path = student.given.distill_from
    if path.endswith(answer_files.SUFFIX):
        return KeptAnswers(student)
    kept = os.path.join(path, _ANSWERS)
    if tf.io.gfile.exists(kept):
        raise UserError(
            f"--distill_from={path}: contains the answers of a teacher; pass {kept}"
        )
    return TrainedTeacher(student)


class Teacher(abc.ABC):
    """Answers the rows of a student.

    Attributes:
        splits: the sets of which rows contain its answers.
        digest: identifies it, in hexadecimal.
    """

    splits: tuple[str, ...]
    digest: str

    def __init__(self, student: Experiment):
        self.student = student

    def distilled(self, objective: Objective) -> Objective:
        """The objective of the student.

        Args:
            objective: of the task.
        """
        if not objective.compared:
            raise UserError(
                f"--distill_from={self.student.given.distill_from}: a head of this kind "
                "cannot be compared with a teacher's; train the teacher and the student "
                "with the script's default head"
            )
        default = next(iter(COMPARED[objective.compared_as].losses))
        settings = self.student.given.distillation(default)
        if settings.loss == "mse" and settings.temperature != 1.0:
            raise UserError(
                f"--distill_temperature={settings.temperature:g} has no effect on mse, "
                "which compares logits; remove it"
            )
        made = Distilled(objective, settings, *self.live())
        try:
            made.check(self.student.config)
        except ValueError as error:
            path = self.student.given.distill_from
            raise UserError(f"--distill_from={path}: {error}") from error
        return made

    def live(self) -> tuple:
        """What makes the network to ask about every batch, and its config, if any."""
        return ()

    def models(self, split: str) -> list[Model]:
        """The teacher itself, to compare students with; none if only answers are known."""
        return []

    @abc.abstractmethod
    def answers(self, split: str) -> answer_files.Answers:
        """Its answers; all hosts must call this."""

    def keep(  # noqa: B027  optional
        self, split: str, known: answer_files.Answers, rows: Callable[[], Iterator]
    ) -> None:
        """Keeps answers for a later run; only the chief calls this.

        Args:
            rows: makes the rows with their answers again, if they are not known yet.
        """

    def close(self) -> None:  # noqa: B027  optional
        """Lets other processes write to the files again."""


class KeptAnswers(Teacher):
    """Answers that an earlier distillation left."""

    def __init__(self, student):
        super().__init__(student)
        given, task = student.given, student.task
        self._path = given.distill_from
        if given.distill_live or given.distillation("kl").compares_layers:
            raise UserError(
                f"--distill_from={self._path}: contains answers only; to compare layers or "
                "for --distill_live, pass the teacher itself"
            )
        self._note = answer_files.read_note(self._path)
        if not self._note:
            answer_files.read(self._path, ())  # says what is wrong
        mine, noted = type(task).__name__, self._note["task"]
        if noted != mine:
            raise UserError(f"{self._path}: answers of the task {noted}, not {mine}")
        rows = {**task.tokenizer.settings, "max_seq_length": given.max_seq_length}
        asked = {**self._note["text"], "max_seq_length": self._note["max_seq_length"]}
        for name, value in rows.items():
            if asked.get(name) != value:
                was = f"--{name}={str(asked.get(name)).lower()}"
                if name == "vocab_sha256":
                    was = "another --vocab_file"
                raise UserError(
                    f"{self._path}: the teacher was asked with {was}; pass the same, or "
                    "the teacher itself as --distill_from"
                )
        task.restore(self._note["state"])
        self.digest = self._note["sha256"]
        self.splits = ("train",)
        if given.evaluates and self._answers(split := task.eval_sets[0]):
            self.splits += (split,)

    def _answers(self, split):
        """Whether the same teacher's answers to a set lie next to those for training."""
        path = self._file(split)
        note = answer_files.read_note(path)
        if not note:
            return False
        asked = ("teacher_sha256", "text", "max_seq_length")
        fits = all(note.get(name) == self._note.get(name) for name in asked)
        if fits and note.get(_EXAMPLES) == self.student.sets.digest(split):
            return True
        self.student.log.say(
            f"{path}: answers to another {split} set or by another teacher; not used"
        )
        return False

    def answers(self, split):
        outputs = self.student.task.objective().sequence_outputs
        return answer_files.read(self._file(split), outputs)

    def _file(self, split):
        return _of_split(self._path, split)


class TrainedTeacher(Teacher):
    """A model whose weights are at hand."""

    def __init__(self, student):
        super().__init__(student)
        given, task = student.given, student.task
        self._path = given.distill_from
        with _named(self._path):
            self.experiment, state = self._experiment()
            if state:
                # The student answers with the teacher's labels, in their order.
                task.restore(state)
        self.shares_tokenizer = (
            self.experiment.task.tokenizer.settings == task.tokenizer.settings
        )
        self._spoilt = set()  # sets whose kept answers cannot be read
        self._is_live = given.distill_live or given.distillation("kl").compares_layers
        self.splits = (() if self._is_live else ("train",)) + task.eval_sets[:1]

    def _experiment(self):
        """What asks the teacher about the student's files, and what it noted of itself."""
        student = self.student
        given, task = student.given, student.task
        path, vocabulary = self._path, None
        if exported.is_export(path):
            path = os.path.join(given.output_dir, FOLDER, "model")
            distribution.on_chief(
                student.strategy, lambda: exported.unpack(self._path, path)
            )
            vocabulary = exported.vocabulary_of(self._path)
        source = checkpoint.resolve(path)
        folder = teacher_folder.of(source, given)
        vocabulary = vocabulary or kinds.find_vocabulary(folder)
        if not vocabulary:
            vocabulary = given.vocab_file
            student.log.say(
                f"{folder}: no vocabulary, so the teacher reads with {vocabulary}; if it "
                "has its own, put it there"
            )
        state = run_folder.text_settings(folder)[1]
        if not state and hugging_face.is_weights(source):
            kind = kinds.kind_of(vocabulary)
            state = hugging_face_task.read_task(source)
            state |= hugging_face_tokenizers.settings_of(
                source, kind.hugging_face_settings
            )
        asked = dataclasses.replace(
            _asked(given, state),
            init_checkpoint=path,
            bert_config_file=folder,
            vocab_file=vocabulary,
        )
        task = type(task)(asked, checks.make_tokenizer(asked))
        return Experiment(task, asked, student.strategy, TEACHER), state

    def close(self):
        self.experiment.sets.close()

    @functools.cached_property
    def trainer(self):
        """The model, as a trainer that only predicts."""
        experiment = self.experiment
        # Labels may come from the training set.
        experiment.sets.examples("train")
        with _named(self._path):
            trainer = experiment.trainer(every_trial(experiment.given)[0])
            self._check_head(trainer)
            experiment.start(trainer, experiment.given.output_dir)
        return trainer

    def _check_head(self, trainer):
        source = checkpoint.resolve(self.experiment.given.init_checkpoint)
        missing = trainer.weights.keys() - checkpoint.shapes_of(source).keys()
        scope = trainer.model.encoder.scope
        if heads := [name for name in missing if not name.startswith(scope)]:
            raise UserError(
                f"was not trained for this task: there is no {', '.join(sorted(heads))} "
                "in it; fine-tune it with this script first"
            )

    @functools.cached_property
    def digest(self):
        weights = checkpoint.digest(self.trainer.weights)
        text = sorted(self.experiment.task.tokenizer.settings.items())
        return hashlib.sha256(repr((weights, text)).encode()).hexdigest()

    def distilled(self, objective):
        self._check_tokenizer(objective)
        return super().distilled(objective)

    def _check_tokenizer(self, objective):
        if self.shares_tokenizer:
            return
        what, hint = None, ""
        if self._is_live:
            what = "asking about every batch"
            hint = (
                ", or leave out --distill_live and the losses of layers and attention"
            )
        elif objective.sequence_outputs:
            what = "comparing answers token by token"
        if what:
            raise UserError(
                f"--distill_from={self.student.given.distill_from}: reads text otherwise "
                f"than the student, and {what} needs the same; pass "
                f"{' '.join(self._other_flags())}{hint}"
            )

    def _other_flags(self):
        """The teacher's flags of the tokenizer, where they are not the student's."""
        theirs, mine = (
            x.task.tokenizer.settings for x in (self.experiment, self.student)
        )
        for name, value in theirs.items():
            if mine.get(name) != value:
                if name == "vocab_sha256":
                    yield f"--vocab_file={self.experiment.given.vocab_file}"
                else:
                    yield from options.words(**{name: value})

    def live(self):
        if not self._is_live:
            return ()
        return (lambda: self.trainer.model), self.experiment.config

    def answers(self, split):
        path, sequences = self._file(split), self.trainer.measured.sequence_outputs
        if self._has_kept(split):
            try:
                return answer_files.read(path, sequences)
            except UserError as error:
                self.student.log.say(f"{error}; asking again")
                self._spoilt.add(split)
        self.student.log.say(f"asking the teacher about {split}")
        predictions, _ = self.experiment.predict(
            self.trainer, split, self.experiment.given.predict_batch_size
        )
        names = self.trainer.measured.compared
        outputs = {name: predictions.outputs[name] for name in names}
        return answer_files.Answers(outputs, sequences, None, split)

    def keep(self, split, known, rows):
        if self._has_kept(split):
            return
        student = self.student
        if known.hashes is None:
            collections.deque(rows(), maxlen=0)
        note = {
            answer_files.FINGERPRINT: self._fingerprint(split),
            "teacher_sha256": self.digest,
            "task": type(student.task).__name__,
            "state": self.experiment.task.state(),
            "text": student.task.tokenizer.settings,
            "max_seq_length": student.given.max_seq_length,
            _EXAMPLES: student.sets.digest(split),
        }
        answer_files.write(self._file(split), known, note)

    def _has_kept(self, split):
        """Whether the file should contain these answers."""
        noted = answer_files.read_note(self._file(split))
        known = noted.get(answer_files.FINGERPRINT) == self._fingerprint(split)
        return known and split not in self._spoilt

    def models(self, split):
        _, scores = self.experiment.score(self.trainer, split)
        return [Model(TEACHER, self.experiment, self.trainer, scores)]

    def _file(self, split):
        folder = self.experiment.given.output_dir
        return _of_split(os.path.join(folder, _ANSWERS), split)

    def _fingerprint(self, split):
        """Hashes what determines the answers and the rows they belong to."""
        own = self.experiment.sets.read(split).fingerprint
        settings = self.student.task.tokenizer.settings
        dtype = self.experiment.given.dtype
        text = repr((own, self.digest, sorted(settings.items()), dtype))
        return hashlib.sha256(text.encode()).hexdigest()


def _of_split(path, split):
    """The answers to a set lie next to those for training."""
    if split == "train":
        return path
    return f"{path.removesuffix(answer_files.SUFFIX)}_{split}{answer_files.SUFFIX}"


def _asked(given, state):
    """The flags with which the teacher reads the student's files.

    They differ where the text or the network does. What else makes rows is the student's:
    the same rows are compared.
    """
    known = {field.name for field in dataclasses.fields(given)}
    of_text = {
        field.name: field.default for field in dataclasses.fields(TokenizerOptions)
    }
    others = {"lstm_layers": 0, "lstm_size": None, "features": None}
    # If a teacher noted some flags of text, the others are for other kinds of vocabulary.
    state = others | (of_text if of_text.keys() & state.keys() else {}) | state
    names = {*of_text, *others} & known & state.keys()
    changes = {name: state[name] for name in names}
    if "pooling" in known:
        changes["pooling"] = None  # the config says it
    return dataclasses.replace(
        given,
        **changes,
        output_dir=os.path.join(given.output_dir, FOLDER),
        init_encoder_only=False,
        do_train=False,
        do_eval=given.evaluates,
        do_predict=False,
        do_export=not given.evaluates,  # something must be asked for; this needs no set
        export_formats=[],
        num_trials=1,
        early_stopping_patience=0,
        learning_rate=given.learning_rate[:1],
        train_batch_size=given.train_batch_size[:1],
        num_train_epochs=given.num_train_epochs[:1],
    )


@contextlib.contextmanager
def _named(path):
    """Says of errors that they are about the teacher."""
    try:
        yield
    except UserError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise UserError(f"--distill_from={path}: {message}") from error
