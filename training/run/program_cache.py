"""Where XLA keeps compiled programs, so that only the first start of a command compiles.

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

NONE = "none"
_VARIABLE = "TF_XLA_FLAGS"
_DIRECTORY = "--tf_xla_persistent_cache_directory"
_PREFIX = "--tf_xla_persistent_cache_prefix"
_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
_QUERY_SECONDS = 10
_LEAST_FREE = 1 << 30  # bytes; a program has some tens of megabytes


def keep_programs(folder: str | None, **settings) -> None:
    """Makes TensorFlow keep compiled programs; call it before TensorFlow is loaded.

    Args:
        folder: NONE keeps none; None is the user's cache folder, if there is a GPU: on
            a CPU, a program that was kept is slower than one just compiled.
        settings: what else of this process its programs depend on.
    """
    flags = os.environ.get(_VARIABLE, "")
    if folder == NONE or _DIRECTORY in flags:
        return
    gpus = _gpus()
    if folder is None and not gpus:
        return
    folder = os.path.abspath(folder or _default_folder())
    if '"' in folder or not _is_usable(folder):
        return
    more = [f'{_DIRECTORY}="{folder}"', f"{_PREFIX}={_key(gpus, settings)}"]
    os.environ[_VARIABLE] = " ".join([flags, *more]).strip()


def _default_folder():
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "bert-programs")


def _gpus():
    """The models of all GPUs and their driver, as nvidia-smi lists them, or nothing."""
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
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free >= _LEAST_FREE
    except OSError:
        return False


def _key(gpus, settings):
    packages = importlib.metadata.packages_distributions().get("tensorflow", [])
    depends_on = (
        [(name, importlib.metadata.version(name)) for name in packages],
        *(os.environ.get(name) for name in ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES")),
        gpus,
        sorted(settings.items()),
    )
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]
