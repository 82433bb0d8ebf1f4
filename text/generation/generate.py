"""Runs the stages of generation, alone or as one of several that share the tasks.

Shards meet in the folder of the unfinished work. The first one leads: it begins the folder,
describes the records and removes the folder. The others join in.
"""

import contextlib
import errno
import os
import time

from errors import UserError
from files import local, sources
from text.generation import outputs, stages, work
from text.generation.settings import Settings
from text.records.descriptions import Description

# In which shard 0, started again with another number of shards, notes it.
_SECONDS_TO_AGREE = 20.0
_SECONDS_BETWEEN_LOOKS = 60.0


def generate(
    settings: Settings,
    num_workers: int = 1,
    overwrite: bool = False,
    shard: tuple[int, int] = (0, 1),
) -> tuple[Description, bool]:
    """Writes the records and their description, continuing an interrupted run.

    Args:
        num_workers: number of processes; the records do not depend on it.
        overwrite: replace outputs of other settings, finished or not.
        shard: which run this is of how many that write these records together. The first
            begins and ends the work; the others wait for it.
    Returns:
        the description, and whether everything already existed.
    """
    outputs.refuse_overlaps(settings)
    with contextlib.ExitStack() as stack:
        if not shard[0]:
            # First: what another process writes meanwhile must not be read.
            stack.enter_context(outputs.lock_outputs(settings))
        tokenizer = settings.make_tokenizer()
        origin = outputs.origin(settings, tokenizer.vocabulary)
        folder = work.WorkFolder(settings.work_folder, origin, stages.MADE)
        stack.enter_context(_disk_full_explained(folder))
        if shard[0]:
            return _join_in(settings, folder, num_workers, overwrite, shard), False
        return _lead(settings, folder, tokenizer, num_workers, overwrite, shard)


def _lead(settings, folder, tokenizer, num_workers, overwrite, shard):
    """Begins the work, does its share, describes the records, removes the work."""
    unfinished = outputs.fill_in_defaults(folder.unfinished_origin())
    is_resumed = unfinished == folder.origin and not folder.failure()
    if description := outputs.find_finished(settings, folder.origin):
        if is_resumed or not (unfinished or folder.strangers()):
            folder.remove()
        return description, True
    folder.refuse_strangers()
    if not is_resumed:
        if not overwrite:
            outputs.refuse_what_is_there(settings, folder)
        folder.refuse_shards()
        folder.begin()
    folder.share_among(shard[1])
    stages.note_settings(settings)

    def check():
        _check_failure(folder)
        watch()

    watch = _TextWatch(settings, folder)
    share = work.Share(*shard, check)
    try:
        with _working(settings, num_workers, share) as workers:
            counts, written = stages.make_all(settings, folder, workers)
    except sources.ChangedFileError:
        raise  # what is noted is of the text as it was, and good if it is restored
    except UserError as error:
        # The input or a flag must change, so the work so far is useless.
        if share.count == 1:
            folder.remove()
        else:
            folder.begin()
            folder.fail(str(error))  # for runs that start later
        raise
    description = stages.describe(settings, folder.origin, tokenizer, counts, written)
    description.write(settings.description_file)
    folder.remove()
    return description, False


def _join_in(settings, folder, num_workers, overwrite, shard):
    """Shares the work that another run leads; returns the description."""
    index, _ = shard

    def is_begun():
        return outputs.fill_in_defaults(folder.unfinished_origin()) == folder.origin

    def is_ready():
        return is_begun() and os.path.exists(settings.settings_file)

    def check():
        if description := outputs.find_finished(settings, folder.origin):
            raise _Finished(description)
        if is_begun():
            _check_failure(folder)

    def check_before():
        check()
        if overwrite or is_begun():
            return
        try:
            outputs.refuse_what_is_there(settings, folder)
        except UserError:
            check()
            if not is_begun():  # nor has it begun between the two looks
                raise

    def check_within():
        check()
        watch()
        if not is_begun():
            check()  # it may have finished between the two looks
            raise UserError(
                f"{folder.path}: shard 0 has ended without finishing; see its message"
            )

    watch = _TextWatch(settings, folder)
    try:
        work.Share(*shard, check_before).wait_until(is_ready, "shard 0 to begin")
        _agree(folder, shard, check)
        share = work.Share(*shard, check_within)
        # What is refused before it holds this is not one of the job's runs.
        with local.hold_lock(f"{folder.path}/shard-{index}"):
            try:
                with _working(settings, num_workers, share) as workers:
                    stages.make_all(settings, folder, workers)
            except sources.ChangedFileError:
                raise  # the others find it themselves
            except UserError as error:
                if is_begun() and not folder.failure():
                    folder.fail(f"shard {index}: {error}")
                raise
            # So that this run fails if the leading one does.
            share.wait_until(lambda: False, "shard 0 to end")
    except _Finished as finished:
        return finished.description
    except FileNotFoundError:
        check()
        raise


def _agree(folder, shard, check):
    """Refuses another number of shards than the leading run's."""
    _, number = shard
    begun = time.monotonic()

    def agrees():
        return folder.number_of_shards() == number

    def check_time():
        check()
        led = folder.number_of_shards()
        if led not in (None, number) and time.monotonic() - begun > _SECONDS_TO_AGREE:
            raise UserError(
                f"--num_shards={number}, but shard 0 has --num_shards={led}; all must "
                "have the same"
            )

    work.Share(*shard, check_time).wait_until(agrees, "shard 0 to begin")


class _Finished(Exception):
    """Shard 0 has finished while this one waited for it."""

    def __init__(self, description: Description):
        super().__init__()
        self.description = description


class _TextWatch:
    """Looks once a minute, while the text is needed, whether it is still the same.

    The shard that finds a change ends, with ChangedFileError, and the others must not wait.
    """

    def __init__(self, settings, folder):
        self._settings, self._folder = settings, folder
        self._looked = time.monotonic()

    def __call__(self):
        if time.monotonic() - self._looked < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked = time.monotonic()
        if work.outcome_of(stages.corpus_path(self._folder)) is None:
            outputs.statuses(self._settings.input_files, self._folder.origin)


def _check_failure(folder):
    if message := folder.failure():
        raise UserError(message)


@contextlib.contextmanager
def _working(settings, num_workers, share):
    try:
        with work.Workers(num_workers, share) as workers:
            yield workers
    except KeyboardInterrupt as interrupt:
        outputs.remove_temporaries(settings)
        raise KeyboardInterrupt(
            "interrupted; run the same command again to continue"
        ) from interrupt
    finally:
        stages.forget()


_FULL = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is reached; free some space",
    errno.EFBIG: "a file is longer than is allowed here; raise the limit (ulimit -f)",
}


@contextlib.contextmanager
def _disk_full_explained(folder):
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OSError(
            error.errno,
            f"{_FULL[error.errno]} and run the same command again to continue",
            os.path.dirname(os.path.abspath(folder.path)),
        ) from error
