"""Knows files on whatever TensorFlow reaches: this machine, gs:// and the like."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from text.errors import UserError


@contextlib.contextmanager
def access(path: str) -> Iterator[None]:
    """Makes what TensorFlow raises of a file one line for the user.

    Only file access belongs inside: everything that fails there is laid to the path.

    Raises:
        UserError: names the path and the reason.
    """
    try:
        yield
    except tf.errors.OpError as error:
        # Most messages repeat the path: "path; Permission denied".
        reason = " ".join(error.message.rpartition("; ")[2].split())
        raise UserError(f"{path}: cannot be read or written: {reason}") from error
