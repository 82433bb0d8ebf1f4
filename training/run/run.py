"""A run: a training in a folder, or the use of the weights that one left there."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import options
from training.run import distribution, loop, phases, report
from training.run.settle import TrainableModel
from training.storage import loading
from training.storage.folder import BEST, CONFIG, RESULTS, Folder, changes
from training.storage.source import Source
from errors import UserError, count
from modeling.architectures.config import EncoderConfig
from training.run.options import RunOptions


class Run:
    """What pre-training and fine-tuning do alike with the folder of a run.

    Call `check` first, before anything is computed; then, inside `hold`, `start`,
    `prepare` and `train`, in this order.

    Args:
        model: the one that the flags name.
        strategy: on whose devices the run is.
        log: what it reports to.
        folder: of the run.
        identity: see `identity_of`. None if nothing is trained.
        defaults: values of settings that a run did not note and that are neither flags
            nor keys of the config, which had their own defaults.
    """

    def __init__(
        self,
        model: TrainableModel,
        strategy,
        log: report.Report,
        folder: Folder,
        *,
        identity: dict | None = None,
        defaults: dict | None = None,
    ):
        self.folder, self.log = folder, log
        self._model, self._flags = model, model.flags
        self._strategy = strategy
        self.identity = identity
        self.defaults = defaults_of(model.flags, model.config) | (defaults or {})

    def check(self) -> None:
        """Refuses a folder that cannot be used, before any file is replaced.

        Raises:
            UserError: another run is there, or somebody else's files, or none that could
                be evaluated.
        """
        if self.identity is not None:
            self.folder.check_settings(self.identity, self.defaults, self._free())
            self._check_source()
        elif self.folder.holds_weights:
            self._check_ignored()
        elif not self._flags.init_checkpoint:
            raise no_checkpoint(self.folder.path)

    def _free(self):
        """The settings that need not be those that the run began with."""
        if not (began := self.folder.settings):
            return ()
        step = self.folder.steps[-1]
        return phases.free_settings(self.defaults | began, self.identity, step)

    def _check_source(self):
        """Refuses to start from weights that the run would remove."""
        if self.folder.steps or not self._model.source:
            return
        source = os.path.dirname(os.path.realpath(self._model.source.prefix))
        own = map(os.path.realpath, (self.folder.path, self.folder.file(BEST)))
        if source in own:
            raise UserError(
                f"--init_checkpoint={self._flags.init_checkpoint}: is in --output_dir, "
                "where the run's own checkpoints replace it; choose another --output_dir"
            )

    def _check_ignored(self):
        """Refuses flags that promise other weights than those that are there.

        Where these are whole, another --init_checkpoint is only warned of: the release's
        commands pass it, and it may have moved since.
        """
        began, directory = self.folder.settings, self.folder.path
        given = {
            item.name: self._flags.training_settings[item.name]
            for item in dataclasses.fields(self._flags)
            if item.name in self._flags.training_settings.keys() & began.keys()
            and getattr(self._flags, item.name) != options.default_of(item)
        }
        source = given.get("init_checkpoint")
        if self._is_in_use(source):
            del given["init_checkpoint"]
        elif source and not began.get("lora_rank"):
            if source != began["init_checkpoint"]:
                print(
                    f"warning: --init_checkpoint={source} is not read: {directory} "
                    "has the weights of its run",
                    file=sys.stderr,
                )
            del given["init_checkpoint"]
        if changed := changes(began, given):
            raise UserError(
                f"{directory}: the run there began with other settings, and without "
                f"--do_train these have no effect: {'; '.join(changed)}; leave them out, "
                "or choose another --output_dir"
            )

    def _is_in_use(self, source):
        """Whether an --init_checkpoint is the one that the run goes on from."""
        if not source or not _is_inside(source, self.folder.path):
            return False
        newest = self.folder.file(self.folder.newest or "")
        used = (Source.of(self.folder).prefix, newest)
        source = os.path.realpath(self._model.source.prefix)
        return source in map(os.path.realpath, used)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps other trainings out of the folder; see `Folder.hold`.

        Raises:
            UserError: another training has it; raised on every host.
        """
        with contextlib.ExitStack() as stack:
            if self.identity is not None:
                hold = self.folder.hold(self.log.say)
                distribution.on_chief(self._strategy, lambda: stack.enter_context(hold))
                if not distribution.is_chief(self._strategy):
                    self.folder.reopen()
            yield

    def start(
        self,
        trainer: loop.Trainer,
        required: str | tuple[str, ...],
        encoder_only: bool = False,
        with_optimizer: bool = False,
    ) -> None:
        """Resumes the run, or loads the weights of another checkpoint.

        Args:
            required: variables whose names begin with this must be in --init_checkpoint.
            encoder_only: take the encoder of --init_checkpoint without its head.
            with_optimizer: continue --init_checkpoint with its slots and its step.
        Raises:
            UserError: there is nothing to evaluate, or a checkpoint does not fit.
        """
        step = trainer.restore(self.folder, weights_only=self.identity is None)
        if step is not None:
            self.log.say(f"continuing from step {step} in {self.folder.path}")
        elif (source := self._model.source) and with_optimizer:
            phases.continue_checkpoint(trainer, source, required, self.identity)
            self.log.say(
                f"continuing {source.prefix} from its step {trainer.progress.step}, with "
                f"batch {trainer.progress.next_batch} of the records"
            )
        elif source:
            loaded = load_start(trainer, source, required, encoder_only)
            self.log.say(str(loaded))
        elif self.identity is None:
            raise no_checkpoint(self.folder.path)
        else:
            self.log.say("no --init_checkpoint: training starts from random weights")
        distribution.check_same(
            self._strategy,
            trainer.progress.step,
            "the newest checkpoint in output_dir is not the same on all hosts; they must "
            "share output_dir",
        )

    def prepare(
        self,
        files: Mapping[str, str | bytes],
        write: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares the folder of a training that `start` began or resumed.

        Only once nothing is left that could be refused.

        Args:
            files: what the model needs besides its config, by name.
            write: does what else is to be done, before the files are written.
        """

        def prepare():
            config = {CONFIG: self._model.config.to_json_string()}
            self.folder.check_files(config | files)
            self.folder.clear()
            self.folder.child(BEST).clear()
            self._note_settings()
            write()
            self.folder.write_files(config | files)

        distribution.on_chief(self._strategy, prepare)

    def _note_settings(self):
        free = self._free()
        rates = {name: self.identity[name] for name in free}
        if changed := changes(self.folder.settings, rates, self.defaults):
            self.log.say(f"from here on with another schedule: {'; '.join(changed)}")
        self.folder.note_settings(self.identity, self.defaults, free)

    def train(
        self,
        trainer: loop.Trainer,
        data: Callable,
        held_out: Callable[[], dict[str, float]] | None = None,
        enough: Callable[[], bool] = lambda: False,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """Trains to the last update, if it is not done; draws the curves.

        Args:
            data, held_out, enough: see `Trainer.train`.
            announce: says what will be done, if anything is left to do.
        Raises:
            NotFiniteError: too many updates in a row were skipped.
        """
        step = trainer.progress.step
        if step >= trainer.settings.num_train_steps or enough():
            self.log.say(f"already finished: {count(step, 'update')} done")
        else:
            announce()
            with _interruptible(self.folder):
                trainer.train(data, self.folder, self.log, held_out, enough)
        # Also for a run that was killed when only this was left to do.
        if picture := self.log.draw():
            self.log.say(f"finished; curves are in {picture}")


def identity_of(flags: RunOptions, config: EncoderConfig, teacher, *parts: Mapping):
    """The settings that identify a training: with any of them changed, it is another run.

    Args:
        flags: say themselves which of them count; see `options.field`.
        config: all of it counts.
        teacher: of a distillation, identified by its `digest`; None without one.
        parts: what else the run is made of says about itself.
    """
    identity = options.identity(flags)
    for part in parts:
        identity |= part
    identity |= {"teacher_sha256": teacher.digest if teacher else None}
    # As it will be read back: JSON turns tuples into lists.
    return json.loads(json.dumps(identity | dataclasses.asdict(config)))


def defaults_of(flags: RunOptions, config: EncoderConfig) -> dict:
    """The defaults of flags and config keys, which they had where they were not noted."""
    return {
        field.name: options.default_of(field)
        for of in (flags, config)
        for field in dataclasses.fields(of)
        if options.default_of(field) is not dataclasses.MISSING
    }


def load_start(
    trainer: loop.Trainer,
    source: Source,
    required: str | tuple[str, ...],
    encoder_only: bool,
) -> loading.LoadReport:
    """Loads the weights to start from; see `Run.start`."""
    weights, scope = trainer.weights, trainer.model.encoder.scope
    if encoder_only:
        weights = {k: v for k, v in weights.items() if k.startswith(scope)}
    return source.load(weights, required, scope)


def no_checkpoint(directory: str) -> UserError:
    """The error to raise if there is nothing to evaluate."""
    return UserError(
        f"{directory}: contains no checkpoint to evaluate; pass --do_train or "
        "--init_checkpoint"
    )


def results_file(values: dict[str, float | int]) -> dict[str, str]:
    """The name and content of the file of `key = value` lines, as in the release."""
    lines = (
        f"{name} = {value if isinstance(value, int) else str(np.float32(value))}\n"
        for name, value in sorted(values.items())
    )
    return {RESULTS: "".join(lines)}


def _is_inside(path, directory):
    """Whether a path is that of a directory or of something in it."""
    path, directory = (os.path.join(os.path.realpath(p), "") for p in (path, directory))
    return path.startswith(directory)


@contextlib.contextmanager
def _interruptible(folder: Folder) -> Iterator[None]:
    """Makes Ctrl-C say how to continue the run."""
    try:
        yield
    except KeyboardInterrupt:
        done = folder.steps
        where = f"continues from step {done[-1]}" if done else "starts this run over"
        raise KeyboardInterrupt(f"interrupted; the same command {where}") from None
