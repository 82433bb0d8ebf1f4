"""Limits an output_dir to one training at a time, by a lock or, on gs://, a lease."""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator

from training.storage import run_folder
from errors import UserError
from files import anywhere, json_files, local, sources

_leases = []  # those that this process holds


@contextlib.contextmanager
def held(directory: str, say: Callable[[str], None]) -> Iterator[None]:
    """Keeps other trainings out of a directory, which it creates.

    On gs://, which has no locks, the latest training takes over the directory, because a
    preempted TPU must be able to restart at once. The previous one ends at its next
    checkpoint; see `check_held`.

    Args:
        say: called with a message if it takes over from another training.
    Raises:
        UserError: another training has it; names the process and its host.
    """
    with contextlib.ExitStack() as stack:
        with anywhere.access(directory):
            anywhere.makedirs(directory)
            if sources.is_remote(directory):
                stack.enter_context(_leased(directory, say))
            else:
                path = os.path.join(directory, run_folder.SETTINGS)
                stack.enter_context(local.locked(path))
        yield


@contextlib.contextmanager
def _leased(directory, say):
    lease = _Lease(directory)
    if before := lease.read():
        say(
            f"{directory}: taken over from {before.get('holder')}, which last wrote at "
            f"{before.get('written')}"
        )
    lease.write()
    _leases.append(lease)
    try:
        yield
    finally:
        _leases.remove(lease)
        if lease.is_ours():
            anywhere.remove(lease.path)


class _Lease:
    """A file that names the process that trains."""

    def __init__(self, directory):
        self.directory = directory
        self.path = os.path.join(directory, run_folder.LEASE)
        self._token = secrets.token_hex(8)

    def write(self):
        lease = {
            "holder": f"process {os.getpid()} on {local.host()}",
            "token": self._token,
            "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with anywhere.replacing(self.path, "w") as file:
            file.write(json.dumps(lease) + "\n")

    def read(self):
        return json_files.read_own(self.path)

    def is_ours(self):
        return self.read().get("token") == self._token


def check_held() -> None:
    """Call it before writing a checkpoint; renews what `held` noted."""
    for lease in _leases:
        # A process that took over and was then refused has left no lease.
        if (content := lease.read()) and not lease.is_ours():
            raise UserError(
                f"{lease.directory}: {content.get('holder', 'another process')} has taken "
                "over this training; this process ends without another checkpoint"
            )
        lease.write()
