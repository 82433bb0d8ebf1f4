"""Fetches models by their addresses on Hugging Face's hub, and uploads them.

An address is hf://organization/name or hf://organization/name@revision. The package
huggingface_hub does the rest: its cache, tokens, mirrors (HF_ENDPOINT) and offline mode
(HF_HUB_OFFLINE=1) work as its documentation says.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Collection, Iterator
from typing import NamedTuple

from errors import UserError
from files import weight_index

PREFIX = "hf://"
CARD = "README.md"
ANSWER_SECONDS = 60  # for the whole of the first answer
_ADDRESS = re.compile(r"([\w-][\w.-]*(?:/[\w-][\w.-]*)?)(?:@([\w-][\w./-]*))?")
_CACHED = re.compile(r"models--([\w.-]+)/snapshots/([0-9a-f]{40})(?:/|$)")

_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_VOCABULARIES = ("vocab.txt", "vocab.json", "spiece.model", "tokenizer.json")
_TEXT = (*_VOCABULARIES, "merges.txt", "tokenizer_config.json")
# Of sentence-transformers' models; a file of the model's own folder is the first.
_VECTORS = ("modules.json", "sentence_bert_config.json")
_VECTORS += ("config_sentence_transformers.json", "1_Pooling/config.json")
_VECTORS += ("2_Dense/config.json", f"2_Dense/{_WEIGHTS}")
# By purpose: files, one of them required, and all that are fetched.
_FILES = {
    # The shards that an index names are fetched after it.
    "weights": (
        (_WEIGHTS, weight_index.NAME),
        (*_VECTORS, _CONFIG, *_TEXT, _WEIGHTS, weight_index.NAME),
    ),
    "vocabulary": (_VOCABULARIES, _TEXT),
    "config": ((_CONFIG,), (_CONFIG,)),
}
_OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".pt", ".ckpt", ".safetensors")


class Address(NamedTuple):
    """Where a model is on the hub.

    Attributes:
        name: "organization/name".
        revision: a branch, a tag or the hash of a commit.
    """

    name: str
    revision: str | None = None

    def __str__(self):
        return f"{PREFIX}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_address(path: str) -> bool:
    return path.startswith(PREFIX)


def is_name(text: str) -> bool:
    """Whether it may be the name of a model there, "organization/name"."""
    match = _ADDRESS.fullmatch(text)
    return bool(match) and "/" in match[1]


def parse(text: str) -> Address:
    """Reads an address; raises UserError if it is none."""
    match = _ADDRESS.fullmatch(text.removeprefix(PREFIX))
    if not is_address(text) or not match or ".." in text:
        raise UserError(
            f"{text}: must be {PREFIX}organization/name or "
            f"{PREFIX}organization/name@revision, without a path in it"
        )
    return Address(*match.groups())


def address_of(path: str) -> Address | None:
    """The address of a path that was fetched, with its commit; None for other paths."""
    match = _CACHED.search(os.path.abspath(path))
    return match and Address(match[1].replace("--", "/"), match[2])


# --- Fetching ------------------------------------------------------------------------


def local(path: str, purpose: str) -> str:
    """The folder for an address, see `folder`; other paths as they are."""
    return folder(path, purpose) if is_address(path) else path


@functools.cache  # a process keeps to what it has seen first
def folder(address: str, purpose: str) -> str:
    """Fetches what is needed of a model, unless the cache has it.

    Args:
        address: of the model.
        purpose: "weights" (with config and vocabulary), "vocabulary" or "config".
    Returns:
        the folder of the files, in the cache.
    Raises:
        UserError: the address is wrong, the model is not there, is gated, or lacks what is
            needed; it cannot be reached, and the cache lacks it; a file is damaged.
    """
    where, hub = parse(address), _hub(address)
    try:
        with _one_line(where, hub):
            return _download(where, hub, purpose)
    except _UnreachableError as error:
        return _find_in_cache(where, hub, purpose, error)


def _download(where: Address, hub, purpose: str) -> str:
    one_of, needed = _FILES[purpose]
    model = _model(hub, where, files_metadata=True)
    files = {file.rfilename: file for file in model.siblings}
    if not files.keys() & set(one_of):
        raise UserError(f"{where}: {_lacking(purpose, files)}")
    is_split = _WEIGHTS in needed and _WEIGHTS not in files
    needed = [n for n in needed if n in files and (is_split or n != weight_index.NAME)]
    folder = _fetch(where, hub, model, needed)
    if is_split:
        shards = _shards(folder)
        if absent := [name for name in shards if name not in files]:
            raise UserError(
                f"{where}: has no {absent[0]}, which its {weight_index.NAME} names"
            )
        _fetch(where, hub, model, shards)
    return folder


def _fetch(where: Address, hub, model, needed: list[str]) -> str:
    """The folder of these files of a model; those that the cache lacks are fetched."""
    files = {file.rfilename: file for file in model.siblings}
    there = functools.partial(hub.try_to_load_from_cache, where.name)
    new = [
        name for name in needed if not isinstance(there(name, revision=model.sha), str)
    ]
    if new:
        sizes = [files[name].size for name in new]
        size = "" if None in sizes else f" ({sum(sizes) / 1e6:,.1f} MB)"
        print(
            f"{where}: fetching {', '.join(new)}{size}",
            file=sys.stderr,
            flush=True,
        )
    api = hub.HfApi()
    for name in needed:
        # By its branch, not by the commit, so that the cache knows what the branch was.
        path = api.hf_hub_download(where.name, name, revision=where.revision)
        if name in new:
            _check(where, path, files[name])
    return os.path.dirname(path)


def _model(hub, where: Address, **named):
    """What the hub says about a model.

    huggingface_hub itself waits for ever: it has no limit of time here, and elsewhere one
    for the time between two pieces of an answer.
    """
    answer = concurrent.futures.Future()

    def ask():
        try:
            api = hub.HfApi()
            model = api.model_info(where.name, revision=where.revision, **named)
            answer.set_result(model)
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    concurrent.futures.wait([answer], ANSWER_SECONDS)
    if not answer.done():
        hub.close_session()  # so that the thread ends with what arrives next
        raise _UnreachableError(f"no answer within {ANSWER_SECONDS} seconds")
    return answer.result()


def _shards(folder: str) -> list[str]:
    """The names of the files that the index in a folder names."""
    index = weight_index.read(os.path.join(folder, weight_index.NAME))
    return sorted(set(index.values()))


def _lacking(purpose, files: Collection[str]) -> str:
    if purpose != "weights":
        return f"has no {' or '.join(_FILES[purpose][0])}"
    other = ", ".join(sorted(name for name in files if name.endswith(_OTHER_WEIGHTS)))
    return (
        f"has no {_WEIGHTS}, only {other or 'files without weights'}; only safetensors "
        "files are read, because unpickling can execute arbitrary code. Look for a "
        "revision with one, such as @refs/pr/1, among its pull requests, or load the model "
        "with transformers, save it with save_pretrained(folder), and pass the folder"
    )


def _find_in_cache(where: Address, hub, purpose: str, error: Exception) -> str:
    """The folder in the cache, where the hub cannot be reached."""
    one_of, needed = _FILES[purpose]

    def cached_paths(names):
        paths = {
            name: hub.try_to_load_from_cache(where.name, name, revision=where.revision)
            for name in names
        }
        return {name: path for name, path in paths.items() if isinstance(path, str)}

    present = cached_paths(needed)
    folder = os.path.dirname(next(iter(present.values()), ""))
    is_split = weight_index.NAME in present and _WEIGHTS not in present
    shards = _shards(folder) if is_split else []
    if not present.keys() & set(one_of) or cached_paths(shards).keys() != set(shards):
        raise UserError(
            f"{where}: cannot be reached ({error}), and the cache of huggingface_hub lacks "
            "it; fetch it once where there is a network, or pass a local folder"
        )
    print(f"{where}: cannot be reached ({error}); using the cache", file=sys.stderr)
    return folder


def _check(where: Address, path: str, file) -> None:
    """Refuses a file with another size or checksum than the hub says; removes it.

    Some mirrors say neither, and then huggingface_hub alone has compared the size.
    """
    size, checksum = file.size, file.blob_id
    digest = hashlib.sha1(b"blob %d\0" % os.path.getsize(path))  # as git names files
    if file.lfs:
        size, checksum, digest = file.lfs.size, file.lfs.sha256, hashlib.sha256()
    with open(path, "rb") as content:
        for block in iter(functools.partial(content.read, 1 << 24), b""):
            digest.update(block)
    actual = os.path.getsize(path), digest.hexdigest()
    if any(b not in (None, a) for a, b in zip(actual, (size, checksum), strict=True)):
        os.remove(os.path.realpath(path))
        raise UserError(
            f"{where}: {file.rfilename} arrived damaged and was removed; run the same "
            "command again"
        )


# --- Uploading -----------------------------------------------------------------------


def push(folder: str, address: str, names: Collection[str]) -> str:
    """Uploads files of a folder, after printing what is sent.

    A model that does not exist is created, private. A card that is there stays, because
    its owner may have completed it.

    Returns:
        the URL of the commit.
    Raises:
        UserError: nobody is logged in, may not write there, or the hub cannot be reached.
    """
    where = parse(address)
    hub = _hub(address)
    api = hub.HfApi()
    try:
        with _one_line(where, hub):
            there = _names_there(hub, where)
            names = sorted(set(names) - ({CARD} & there))
            for name in names:
                size = os.path.getsize(os.path.join(folder, name))
                how = "replaces the one there" if name in there else "new"
                print(f"{where}: {name}, {size / 1e6:,.1f} MB, {how}")
            if CARD in there:
                print(f"{where}: {CARD} is there and stays")
            api.create_repo(where.name, private=True, exist_ok=True)
            done = api.upload_folder(
                repo_id=where.name,
                folder_path=folder,
                allow_patterns=names,
                revision=where.revision,
                commit_message="Upload a model",
            )
    except _UnreachableError as error:
        raise UserError(
            f"{where}: cannot be reached ({error}); {folder} is complete: upload it later "
            f"with hf upload {where.name} {folder}"
        ) from error
    return done.commit_url


def _names_there(hub, where) -> set[str]:
    try:
        model = _model(hub, where)
    except hub.errors.GatedRepoError:
        raise
    except hub.errors.RepositoryNotFoundError:
        return set()
    return {file.rfilename for file in model.siblings}


# --- Errors --------------------------------------------------------------------------


class _UnreachableError(Exception):
    """There is no network, or the hub does not answer."""


def _hub(address):
    try:
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise UserError(
            f"{address}: needs huggingface_hub; pip install -r requirements/hub.txt"
        ) from error
    return huggingface_hub


@contextlib.contextmanager
def _one_line(where: Address, hub) -> Iterator[None]:
    """Turns huggingface_hub's errors into one line."""
    errors = hub.errors
    client_error, _ = errors.HfHubHTTPError.__bases__  # of its HTTP client
    log_in = "log in with `hf auth login` or set HF_TOKEN"
    verbosity = hub.utils.logging.get_verbosity()
    try:
        if (
            verbosity == hub.utils.logging.WARNING
        ):  # what it tries again is nothing to do
            hub.utils.logging.set_verbosity_error()
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{where}: is gated; accept its conditions on its page, then {log_in}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{where}: no such model, or a private one; check the spelling, or {log_in}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{where}: has no revision {where.revision}") from error
    except errors.OfflineModeIsEnabled as error:
        raise _UnreachableError("HF_HUB_OFFLINE is set") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise UserError(f"{where}: access is denied; {log_in}") from error
        if status < 500:
            raise UserError(f"{where}: refused by the hub: {_short(error)}") from error
        raise _UnreachableError(f"status {status}") from error
    except (client_error, errors.LocalEntryNotFoundError) as error:
        raise _UnreachableError(_short(error)) from error
    except RuntimeError as error:  # of an upload
        reason = error.__cause__ or error
        raise _UnreachableError(f"{_short(error)} {_short(reason)}") from error
    except (errors.HFValidationError, errors.FileMetadataError) as error:
        raise UserError(f"{where}: {_short(error)}") from error
    finally:
        hub.utils.logging.set_verbosity(verbosity)


def _short(error) -> str:
    return " ".join(str(error).split())[:200]
