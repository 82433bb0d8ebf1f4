"""Where XLA keeps compiled programs, so that a command compiles once, not at each start.

TensorFlow reads where from its environment while it is loaded. It finds a program again by
what was computed, so everything else that a program depends on is in the name of its file.
It ends a run whose cache it cannot read or write; so this looks before.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile

from errors import UserError
from files import sources

NONE = "none"
_VARIABLE = "TF_XLA_FLAGS"
_DIRECTORY = "--tf_xla_persistent_cache_directory"
_PREFIX = "--tf_xla_persistent_cache_prefix"
_DEVICES = "--tf_xla_persistent_cache_device_types"
_QUERY = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.total",
    "--format=csv,noheader",
)
_QUERY_SECONDS = 10
_LEAST_FREE = 1 << 30  # bytes; a program has some tens of megabytes


def keep_programs(folder: str | None, **settings) -> None:
    """Makes TensorFlow keep compiled programs; call it before TensorFlow is loaded.

    Args:
        folder: NONE keeps none; None is the user's cache folder, for GPUs alone: on a CPU,
            a program that was kept is slower than one just compiled.
        settings: what else of this process its programs depend on.
    Raises:
        UserError: a folder that was asked for cannot be used.
    """
    flags = os.environ.get(_VARIABLE, "").strip()
    is_file = bool(flags) and not flags.startswith("-")  # of the user's own flags
    if folder == NONE or _DIRECTORY in flags or is_file:
        return
    present = gpus()
    if not (folder or present):
        return
    where = os.path.expanduser(folder) if folder else _default_folder()
    if not _is_usable(where):
        if folder:
            raise UserError(
                f"--xla_cache_dir={folder}: is not a local folder that can be written and "
                f"has {_LEAST_FREE >> 30} GB of room; name another, or {NONE}"
            )
        return
    added = [
        f'{_DIRECTORY}="{os.path.abspath(where)}"',
        f"{_PREFIX}={_key(present, settings)}",
    ]
    if not folder:
        added.append(f"{_DEVICES}=GPU")
    os.environ[_VARIABLE] = " ".join([flags, *added]).strip()


def _default_folder():
    """Of the user; empty without a home."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    home = home if os.path.isabs(home) else os.path.expanduser("~/.cache")
    return os.path.join(home, "bert-programs") if os.path.isabs(home) else ""


def gpus() -> str:
    """A line for each GPU: its model, driver and memory by nvidia-smi; empty without any.

    It asks no library, because TensorFlow is not loaded yet.
    """
    if not shutil.which(_QUERY[0]):
        return ""
    try:
        done = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_QUERY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _is_usable(folder):
    """Whether files can be written there, and there is room for some."""
    if not folder or '"' in folder or sources.is_remote(folder):
        return False
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free >= _LEAST_FREE
    except OSError:
        return False


def _key(present, settings):
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:  # a build with another name
        version = ""
    names = ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    variables = [os.environ.get(name) for name in names]
    depends_on = (version, variables, present, sorted(settings.items()))
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]
