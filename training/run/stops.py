"""Says when a training stops to report, save or evaluate, or because it is asked to."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

TERMINATED = 128 + signal.SIGTERM  # the exit status, as shells have it


@contextlib.contextmanager
def terminations() -> Iterator[Callable[[], bool]]:
    """Holds back SIGTERM, which machines get half a minute before they are taken away.

    A second one ends the process at once.

    Yields:
        a function that says whether it came.
    """
    came = threading.Event()

    def note(number, frame):
        came.set()
        signal.signal(number, before)

    if threading.current_thread() is not threading.main_thread():
        yield came.is_set  # only the main thread can receive it
        return
    # None is a handler that Python did not set.
    before = signal.signal(signal.SIGTERM, note) or signal.SIG_DFL
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def is_due(settings, step: int, every: int) -> bool:
    """Whether something done every `every` steps, and at the end, is due now."""
    return bool(every) and (step % every == 0 or step == settings.num_train_steps)


def saves(settings, step: int) -> bool:
    """Whether a checkpoint is due."""
    is_kept = step in settings.keep_checkpoints_at
    return is_kept or is_due(settings, step, settings.save_every_steps)


def updates_to_next(settings, step: int) -> int:
    """How many updates one call may make before anything is due; at least 1.

    Args:
        settings: `loop.LoopSettings`.
        step: less than num_train_steps.
    """
    intervals = (
        settings.log_every_steps,
        settings.save_every_steps,
        settings.eval_every_steps,
    )
    to_next = [every - step % every for every in intervals if every]
    to_next += [at - step for at in settings.keep_checkpoints_at if at > step]
    to_next += [settings.num_train_steps - step, settings.steps_per_call]
    return min(to_next)
