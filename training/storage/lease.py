"""A lease limits a folder without locks, as on gs://, to one training at a time."""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator

from training import backend  # noqa: F401  TensorFlow, without its log messages
from errors import UserError
from files import anywhere, json_files, local

_NAME = ".run~bert~lease"


class Lease:
    """A file that names the process that trains."""

    def __init__(self, directory: str):
        self._directory = directory
        self._path = os.path.join(directory, _NAME)
        self._token = secrets.token_hex(8)

    def write(self) -> None:
        """Takes the folder, or says when this process last wrote there."""
        lease = {
            "holder": f"process {os.getpid()} on {local.host()}",
            "token": self._token,
            "written": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with anywhere.replacing(self._path, "w") as file:
            file.write(json.dumps(lease) + "\n")

    def read(self) -> dict:
        """Who has the folder; empty if nobody has."""
        return json_files.read_own(self._path)

    def renew(self) -> None:
        """Raises:
        UserError: another process has taken over the training.
        """
        # A process that took over and was then refused has left no lease.
        if (content := self.read()) and content.get("token") != self._token:
            raise UserError(
                f"{self._directory}: {content.get('holder', 'another process')} has taken "
                "over this training; this process ends without another checkpoint"
            )
        self.write()

    def end(self) -> None:
        """Removes the file, unless another process has taken over."""
        if self.read().get("token") == self._token:
            anywhere.remove(self._path)


@contextlib.contextmanager
def take(directory: str, say: Callable[[str], None]) -> Iterator[Lease]:
    """Takes over a folder, because a preempted TPU must be able to restart at once.

    The previous training ends at its next checkpoint; see `Lease.renew`.

    Args:
        say: called with a message if another training had it.
    """
    lease = Lease(directory)
    if before := lease.read():
        say(
            f"{directory}: taken over from {before.get('holder')}, which last wrote at "
            f"{before.get('written')}"
        )
    lease.write()
    try:
        yield lease
    finally:
        lease.end()
