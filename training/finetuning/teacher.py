"""The teacher of a distillation: a model of the same task."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator

import options
from training.distillation import answer_files
from training.run import checks, distribution
from training.run.settle import TrainableModel, check_teacher
from training.storage import checkpoint_contents, exported
from training.storage.folder import TEACHER
from training.storage.source import Source
from errors import UserError
from modeling.distillation.distilled import Distilled
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives.objective import Objective
from text.tokenizers.table import OpenVocabulary, TokenizerOptions
from training.finetuning.experiment import Experiment
from training.finetuning.options import FineTuningOptions


class Teacher:
    """A model of the task, which answers the rows of a student.

    Tells the student's task what it learned.

    Attributes:
        splits: the sets whose rows contain its answers.
        digest: identifies it, in hexadecimal.
    Raises:
        UserError: there is none that --distill_from names, or it does not fit the student.
    """

    def __init__(self, student: Experiment):
        self.student = student
        flags, task = student.flags, student.task
        self._path = flags.distill_from
        with _name_teacher(self._path):
            self.experiment, state = self._experiment()
            if state:
                # The student answers with the teacher's labels, in their order.
                task.restore(state)
        self.shares_tokenizer = (
            self.experiment.task.tokenizer.settings == task.tokenizer.settings
        )
        self._spoilt = set()  # sets whose kept answers cannot be read
        self._is_live = flags.distill_live or flags.distillation("kl").compares_layers
        self.splits = (() if self._is_live else ("train",)) + task.eval_sets[:1]

    def _experiment(self):
        """What asks the teacher about the student's files, and what it noted of itself."""
        student = self.student
        flags, task = student.flags, student.task
        path, vocabulary = self._path, None
        own = student.folder.child(TEACHER)  # its rows and answers
        if exported.is_export(path):
            unpacked = own.child("model")
            path = unpacked.path
            distribution.on_chief(
                student.strategy, lambda: exported.unpack(self._path, unpacked)
            )
            vocabulary = exported.vocabulary_of(self._path)
        source = Source.open(path)
        check_teacher(source, flags)
        folder, vocabulary = source.folder, vocabulary or source.vocab_file
        if not vocabulary:
            vocabulary = flags.vocab_file
            student.log.say(
                f"{folder}: no vocabulary, so the teacher reads with {vocabulary}; if it "
                "has its own, put it there"
            )
        _, state = source.text.record
        if not state:
            task_settings = source.format.learned_task()
            kind = OpenVocabulary.open(vocabulary, [source.text]).kind
            state = task_settings | source.text.of_weights(kind)
        asked = dataclasses.replace(
            _teacher_flags(flags, state),
            init_checkpoint=path,
            bert_config_file=source.config_file,
            vocab_file=vocabulary,
        )
        model = TrainableModel(asked, source=source, folder=own)
        task = type(task)(asked, model.tokenizer)
        return Experiment(task, model, student.strategy, "teacher"), state

    def close(self) -> None:
        """Lets other processes write to the files again."""
        self.experiment.sets.close()

    @functools.cached_property
    def trainer(self):
        """The model, as a trainer that only predicts."""
        experiment = self.experiment
        # Labels may come from the training set.
        experiment.sets.examples("train")
        with _name_teacher(self._path):
            trainer = experiment.trainer(experiment.flags.trials[0])
            self._check_head(trainer)
            experiment.start(experiment.run(), trainer)
        return trainer

    def _check_head(self, trainer):
        missing = trainer.weights.keys() - self.experiment.model.source.shapes().keys()
        scope = trainer.model.encoder.scope
        if heads := [name for name in missing if not name.startswith(scope)]:
            raise UserError(
                f"was not trained for this task: there is no {', '.join(sorted(heads))} "
                "in it; fine-tune it with this script first"
            )

    @functools.cached_property
    def digest(self) -> str:
        weights = self.trainer.weights
        weights = checkpoint_contents.digest({k: v.numpy() for k, v in weights.items()})
        text = sorted(self.experiment.task.tokenizer.settings.items())
        return hashlib.sha256(repr((weights, text)).encode()).hexdigest()

    def distill(self, objective: Objective) -> Objective:
        """The objective of the student.

        Args:
            objective: of the task.
        """
        self._check_tokenizer()
        if not objective.comparison:
            raise UserError(
                f"--distill_from={self.student.flags.distill_from}: a head of this kind "
                "cannot be compared with a teacher's; train the teacher and the student "
                "with the script's default head"
            )
        default = next(iter(COMPARED[objective.comparison.kind].losses))
        settings = self.student.flags.distillation(default)
        if settings.loss == "mse" and settings.temperature != 1.0:
            raise UserError(
                f"--distill_temperature={settings.temperature:g} has no effect on mse, "
                "which compares logits; remove it"
            )
        made = Distilled(objective, settings, *self._live())
        flags, config = self.student.flags, self.student.config
        source = f"--distill_from={flags.distill_from}"
        checks.check_objective(made, config, source)
        return made

    def _check_tokenizer(self):
        if self.shares_tokenizer:
            return
        what, hint = None, ""
        if self._is_live:
            what = "asking about every batch"
            hint = (
                ", or leave out --distill_live and the losses of layers and attention"
            )
        elif self.trainer.model.sequence_outputs:
            what = "comparing answers token by token"
        if what:
            raise UserError(
                f"--distill_from={self.student.flags.distill_from}: reads text otherwise "
                f"than the student, and {what} needs the same; pass "
                f"{' '.join(self._other_flags())}{hint}"
            )

    def _other_flags(self):
        """The teacher's flags of the tokenizer, where they are not the student's."""
        teacher_settings, student_settings = (
            x.task.tokenizer.settings for x in (self.experiment, self.student)
        )
        for name, value in teacher_settings.items():
            if student_settings.get(name) != value:
                if name == "vocab_sha256":
                    yield f"--vocab_file={self.experiment.flags.vocab_file}"
                else:
                    yield from options.words(**{name: value})

    def _live(self) -> tuple:
        """What makes the network to ask about every batch, and its config, if any."""
        if not self._is_live:
            return ()
        return (lambda: self.trainer.model), self.experiment.config

    def answers(self, split: str) -> answer_files.Answers:
        """Its answers; all hosts must call this."""
        path, sequences = self._file(split), self.trainer.model.sequence_outputs
        if self._has_kept(split):
            try:
                return answer_files.read(path, sequences)
            except UserError as error:
                self.student.log.say(f"{error}; asking again")
                self._spoilt.add(split)
        self.student.log.say(f"asking the teacher about {split}")
        predictions, _ = self.experiment.predict(
            self.trainer, split, self.experiment.flags.predict_batch_size
        )
        names = self.trainer.for_evaluation.comparison.outputs
        outputs = {name: predictions.outputs[name] for name in names}
        return answer_files.Answers(outputs, sequences, None, split)

    def keep(
        self, split: str, answers: answer_files.Answers, rows: Callable[[], Iterator]
    ) -> None:
        """Keeps answers for a later run; only the chief calls this.

        Args:
            rows: makes the rows with their answers again, if they are not known yet.
        """
        if self._has_kept(split):
            return
        if answers.hashes is None:
            collections.deque(rows(), maxlen=0)
        name = os.path.basename(self._file(split))
        folder, fingerprint = self.experiment.folder, self._fingerprint(split)
        answer_files.write(folder, name, answers, fingerprint)

    def _has_kept(self, split):
        """Whether the file should contain these answers."""
        note = answer_files.read_note(self._file(split))
        is_current = note and note["fingerprint"] == self._fingerprint(split)
        return bool(is_current) and split not in self._spoilt

    def tell_scores(self, split: str) -> None:
        """Prints how well it does on a set."""
        _, scores = self.experiment.score(self.trainer, split)
        self.experiment.log.scores(split, scores)

    def _file(self, split):
        name = "answers" if split == "train" else f"answers_{split}"
        return self.experiment.folder.file(f"{name}.tf_record")

    def _fingerprint(self, split):
        """Hashes what determines the answers and the rows they belong to."""
        own = self.experiment.sets.read(split).fingerprint
        settings = self.student.task.tokenizer.settings
        dtype = self.experiment.flags.dtype
        text = repr((own, self.digest, sorted(settings.items()), dtype))
        return hashlib.sha256(text.encode()).hexdigest()


def _teacher_flags(flags: FineTuningOptions, state):
    """The flags with which the teacher reads the student's files.

    They differ where the text or the network does. What else makes rows is the student's:
    the same rows are compared.
    """
    flag_names = {field.name for field in dataclasses.fields(flags)}
    of_text = {
        field.name: field.default for field in dataclasses.fields(TokenizerOptions)
    }
    others = {"lstm_layers": 0, "lstm_size": None, "features": None}
    # If a teacher noted some flags of text, the others are for other kinds of vocabulary.
    state = others | (of_text if of_text.keys() & state.keys() else {}) | state
    names = {*of_text, *others} & flag_names & state.keys()
    changes = {name: state[name] for name in names}
    if "pooling" in flag_names:
        changes["pooling"] = None  # the config says it
    return dataclasses.replace(
        flags,
        **changes,
        output_dir=os.path.join(flags.output_dir, TEACHER),
        init_encoder_only=False,
        do_train=False,
        do_eval=flags.evaluates,
        do_predict=False,
        do_export=not flags.evaluates,  # something must be asked for; this needs no set
        export_attributions=False,
        export_formats=[],
        export_precision="float32",
        min_agreement=FineTuningOptions.min_agreement,
        num_trials=1,
        early_stopping_patience=0,
        learning_rate=flags.learning_rate[:1],
        train_batch_size=flags.train_batch_size[:1],
        num_train_epochs=flags.num_train_epochs[:1],
    )


@contextlib.contextmanager
def _name_teacher(path):
    """Says of errors that they are about the teacher."""
    try:
        yield
    except UserError as error:
        message = str(error).removeprefix(f"{path}: ")
        raise UserError(f"--distill_from={path}: {message}") from error
