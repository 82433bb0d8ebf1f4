"""A run: a training in a folder, or the use of the weights that one left there."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import options
from training.run import distribution, loop, report
from training.storage import checkpoint, lease, run_folder
from errors import UserError, count
from modeling.architectures.config import EncoderConfig
from training.run.options import RunOptions


class Run:
    """What pre-training and fine-tuning do alike with the folder of a run.

    Call `check` first, before anything is computed; then, inside `held`, `start`,
    `prepare` and `train`, in this order.

    Args:
        flags: the script's.
        config: the architecture.
        strategy: on whose devices the run is.
        log: what it reports to.
        directory: of the run; by default, output_dir.
        identity: see `identity_of`. None if nothing is trained.
        defaults: values of settings that a run did not note and that are neither flags
            nor keys of the config, which had their own defaults.
    """

    def __init__(
        self,
        flags: RunOptions,
        config: EncoderConfig,
        strategy,
        log: report.Report,
        *,
        directory: str | None = None,
        identity: dict | None = None,
        defaults: dict | None = None,
    ):
        self.directory = directory or flags.output_dir
        self.log = log
        self._flags, self._source = flags, flags.init_checkpoint
        self._config, self._strategy = config, strategy
        self.identity = identity
        self.defaults = defaults_of(flags, config) | (defaults or {})

    def check(self) -> None:
        """Refuses a folder that cannot be used, before any file is replaced.

        Raises:
            UserError: another run is there, or none that could be evaluated.
        """
        if self.identity is not None:
            run_folder.check_settings(self.directory, self.identity, self.defaults)
        elif run_folder.holds_weights(self.directory):
            self._check_ignored()
        elif not self._source:
            raise no_checkpoint(self.directory)

    def _check_ignored(self):
        """Refuses flags that promise other weights than those that are there.

        Where these are whole, another --init_checkpoint is only warned of: the release's
        commands pass it, and it may have moved since.
        """
        began = run_folder.noted_settings(self.directory)
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
                    f"warning: --init_checkpoint={source} is not read: {self.directory} "
                    "has the weights of its run",
                    file=sys.stderr,
                )
            del given["init_checkpoint"]
        if changed := run_folder.changes(began, given):
            raise UserError(
                f"{self.directory}: the run there began with other settings, and without "
                f"--do_train these have no effect: {'; '.join(changed)}; leave them out, "
                "or choose another --output_dir"
            )

    def _is_in_use(self, source):
        """Whether an --init_checkpoint is the one that the run goes on from."""
        if not source or not _is_inside(source, self.directory):
            return False
        newest = run_folder.newest_of(self.directory) or ""
        used = (checkpoint.resolve(self.directory), f"{self.directory}/{newest}")
        source = os.path.realpath(checkpoint.resolve(source))
        return source in map(os.path.realpath, used)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other trainings out of the folder; see `lease.held`.

        Raises:
            UserError: another training has it; raised on every host.
        """
        with contextlib.ExitStack() as stack:
            if self.identity is not None:
                hold = lease.held(self.directory, self.log.say)
                distribution.on_chief(self._strategy, lambda: stack.enter_context(hold))
            yield

    def start(
        self,
        trainer: loop.Trainer,
        required: str | tuple[str, ...],
        encoder_only: bool = False,
    ) -> None:
        """Resumes the run, or loads the weights of another checkpoint.

        Args:
            required: variables whose names begin with this must be in --init_checkpoint.
            encoder_only: take the encoder of --init_checkpoint without its head.
        Raises:
            UserError: there is nothing to evaluate, or a checkpoint does not fit.
        """
        step = trainer.restore(self.directory, weights_only=self.identity is None)
        if step is not None:
            self.log.say(f"continuing from step {step} in {self.directory}")
        elif self._source:
            loaded = load_start(trainer, self._source, required, encoder_only)
            self.log.say(str(loaded))
        elif self.identity is None:
            raise no_checkpoint(self.directory)
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
        trainer: loop.Trainer | None = None,
        write: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares the folder of a training that `start` began or resumed.

        Only once nothing is left that could be refused.

        Args:
            trainer: of the training, unless that is a search.
            write: writes what else the run and its model need.
        """

        def both():
            self._prepare(trainer)
            write()

        distribution.on_chief(self._strategy, both)

    def _prepare(self, trainer):
        source = None
        if self._source and not (trainer and run_folder.steps(self.directory)):
            source = checkpoint.resolve(self._source)
        for folder in (self.directory, os.path.join(self.directory, run_folder.BEST)):
            run_folder.clear(folder)
        run_folder.note_settings(self.directory, self.identity, self.defaults)
        path = os.path.join(self.directory, run_folder.CONFIG)
        run_folder.write_file(path, self._config.to_json_string())
        if source and _is_inside(source, self.directory):
            # The run writes into the folder of the weights it starts from. They stay; and
            # because init_checkpoint may soon mean others, a resume must not need it.
            run_folder.release(source)
            if trainer:
                trainer.save(self.directory)

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
            with _interruptible(self.directory):
                trainer.train(data, self.directory, self.log, held_out, enough)
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
    init_checkpoint: str,
    required: str | tuple[str, ...],
    encoder_only: bool,
) -> checkpoint.LoadReport:
    """Loads the weights to start from; see `Run.start`."""
    weights, scope = trainer.weights, trainer.model.encoder.scope
    if encoder_only:
        weights = {k: v for k, v in weights.items() if k.startswith(scope)}
    return checkpoint.load(weights, init_checkpoint, required, scope)


def no_checkpoint(directory: str) -> UserError:
    """The error to raise if there is nothing to evaluate."""
    return UserError(
        f"{directory}: contains no checkpoint to evaluate; pass --do_train or "
        "--init_checkpoint"
    )


def write_results(directory: str, values: dict[str, float | int]) -> str:
    """Writes `key = value` lines, sorted, as the release does; returns the path."""
    path = os.path.join(directory, run_folder.RESULTS)
    lines = (
        f"{name} = {value if isinstance(value, int) else str(np.float32(value))}\n"
        for name, value in sorted(values.items())
    )
    run_folder.write_file(path, "".join(lines))
    return path


def _is_inside(path, directory):
    """Whether a path is that of a directory or of something in it."""
    path, directory = (os.path.join(os.path.realpath(p), "") for p in (path, directory))
    return path.startswith(directory)


@contextlib.contextmanager
def _interruptible(directory: str) -> Iterator[None]:
    """Makes Ctrl-C say how to continue the run."""
    try:
        yield
    except KeyboardInterrupt:
        done = run_folder.steps(directory)
        where = f"continues from step {done[-1]}" if done else "starts this run over"
        raise KeyboardInterrupt(f"interrupted; the same command {where}") from None
