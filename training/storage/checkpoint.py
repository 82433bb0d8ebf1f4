"""Reads and writes weights on disk, under the release's variable names.

A checkpoint has TensorFlow 1's format: `model.ckpt-<step>.index` and its data files, next
to the `checkpoint` state file. Weights are saved under the released names, Adam's slots as
`<variable>/adam_m` and `<variable>/adam_v`, and the number of updates as `global_step`.

A bundle is written under a temporary name and renamed, its `.index` last: a bundle whose
`.index` has its final name is complete, whenever the process was killed.

Hugging Face's model.safetensors can be read as well, under the released names. Adapters
are read as the whole model that they make with their base; only `read_stored` sees them.
"""

import collections
import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from training.backend import tf
from training.storage import adapters
from training.storage.folder import BEST, CONFIGS, PARTS, Folder
from errors import UserError, setting
from family.elmo import bilm
from files import anywhere, hub, json_files, local
from modeling.architectures import config
from training.interchange import hugging_face, networks, peft, table

# What TensorFlow raises for a bundle that is missing, truncated or altered.
_DAMAGE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
_OTHERS = (hugging_face, bilm)  # formats of other libraries

_LAYER = re.compile(r"(layer|block)_\d+")
_SLOT = re.compile(r".*(?:(/adam_)[mv]|(/adagrad)|(_slot_)v[rc]?)$")
_MOST_UNUSED = 8  # names on the console; of more, only what they begin with

# --- Reading -------------------------------------------------------------------------


def resolve(path: str) -> str:
    """The prefix of the checkpoint that a user means.

    Args:
        path: a prefix, the path of one of a bundle's files, a directory, or an address
            (see files/hub.py). A directory means, in this order, the best checkpoint
            that early stopping kept there, the newest in its state file, its only bundle,
            or its model.safetensors or the index of several such files.
    Returns:
        A prefix, or the path of a file of another format.
    Raises:
        UserError: there is no such checkpoint, or the directory is ambiguous.
    """
    path = hub.local(path, "weights")
    if anywhere.isdir(path):
        return _resolve_directory(path)
    if _other(path) or peft.is_weights(path):
        if not anywhere.exists(path):
            raise UserError(f"{path}: no such file")
        return path
    if path.endswith((".bin", ".pt", ".pth")) and anywhere.exists(path):
        raise UserError(f"{path}: {hugging_face.NOT_READ}")
    prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path)
    if not anywhere.exists(f"{prefix}.index"):
        hint = f"; a model on Hugging Face's hub is {hub.PREFIX}{path}"
        hint = hint if hub.is_name(path) else ""
        raise UserError(
            f"{prefix}: no such checkpoint: there is neither such a directory nor "
            f"{prefix}.index; pass a directory, or the name before .index{hint}"
        )
    return prefix


def _other(path):
    """The format of what `resolve` returned; None for a bundle."""
    return next((format for format in _OTHERS if format.is_weights(path)), None)


def folder_of(source: str) -> str:
    """The folder whose files (vocabulary, config, task) describe a checkpoint.

    Args:
        source: what `resolve` returned.
    """
    folder = os.path.dirname(source)
    if os.path.basename(folder) != BEST:
        return folder
    run = Folder.open(os.path.dirname(folder))
    return run.path if run.best else folder


def _resolve_directory(directory: str) -> str:
    folder = Folder.open(directory)
    folder = folder.best or folder
    directory, newest = folder.path, folder.newest
    if newest and f"{newest}.index" in folder.names:
        return folder.file(newest)
    index_files = [
        folder.file(name)
        for name in sorted(folder.names)
        if name.endswith(".index") and not local.is_own(name)
    ]
    for format in () if index_files else (*_OTHERS, peft):
        if weights := format.find(directory):
            return weights
    if len(index_files) == 1:
        return index_files[0].removesuffix(".index")
    names = ", ".join(os.path.basename(p) for p in index_files)
    names = names or f"nothing, and there is no {hugging_face.WEIGHTS}"
    raise UserError(
        f"{directory}: no state file names a checkpoint, and *.index matches {names}; "
        "pass the prefix of a checkpoint"
    )


def read(prefix: str, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Reads tensors by name and verifies the checksum of each.

    Fine-tuned heads whose names in their release are others have ours.

    Args:
        prefix: what `resolve` returned.
        names: which to read; all by default.
    Raises:
        UserError: the bundle is incomplete, truncated or altered. (Files of other
            formats have no checksums, so only the first two are detected.)
    """
    if format := _other(prefix):
        return format.read(prefix, names)
    if not peft.is_weights(prefix):
        stored = shapes_of_stored(prefix)
        is_there = names is not None and stored.keys() >= set(names)
        if is_there or not adapters.are_in(stored):
            return read_stored(prefix, names)
    model = _with_base(prefix)
    return {n: model[n] for n in (sorted(model) if names is None else names)}


def _with_base(prefix):
    """The model that adapters make with their base."""
    note, own = adapters_of(prefix)
    base = _of_base(base_weights, note, prefix)
    if note.base_sha256:
        adapters.check_base(note, digest(base), folder_of(prefix))
    adapters.check_fits(_shapes(base), _shapes(own), prefix)
    return adapters.merged(base, own, note.alpha)


def adapters_of(prefix: str) -> tuple[adapters.Note, Mapping[str, np.ndarray]]:
    """What adapters change, and they themselves; peft does not identify the base.

    Args:
        prefix: what `resolve` returned.
    """
    if not peft.is_weights(prefix):
        return adapters.read_note(folder_of(prefix)), read_stored(prefix)
    stored = peft.read(prefix)
    note = adapters.Note(stored.base, "", list(stored.scope), stored.alpha)
    return note, stored.tensors


def _of_base(read_base, note, prefix):
    """What one of the functions below reads; errors say that it is of the base."""
    try:
        if peft.is_weights(prefix) and peft.is_weights(resolve(note.base)):
            raise UserError(
                f"{note.base}: is an adapter, too; merge it with its own base"
            )
        return read_base(note.base, tuple(note.scope))
    except UserError as error:
        named = f"`base` in {adapters.NAME}"
        if peft.is_weights(prefix):
            named = f"{peft.BASE} in {peft.CONFIG}"
        raise UserError(
            f"{prefix}: cannot read the base of these adapters: {error}; if it is "
            f"elsewhere, change {named}"
        ) from error


def folder_of_base(source: str) -> str | None:
    """The folder of the base of peft's adapters; None if a checkpoint is none of these.

    Args:
        source: what `resolve` returned.
    """
    if not peft.is_weights(source):
        return None
    note, _ = adapters_of(source)
    return _of_base(lambda base, _: folder_of(resolve(base)), note, source)


def base_weights(path: str, scope: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The weights of a checkpoint whose names begin so; see `resolve`."""
    return read(resolve(path), base_shapes(path, scope))


def base_shapes(path: str, scope: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of the same."""
    shapes = shapes_of(resolve(path)).items()
    return {k: v for k, v in shapes if k.startswith(scope) and not _SLOT.match(k)}


def _shapes(tensors):
    return {name: value.shape for name, value in tensors.items()}


def read_stored(
    prefix: str, names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Like `read`, for a bundle, but adapters are read as they are."""
    try:
        reader = _reader(prefix)
        stored = table.released_names(reader.get_variable_to_shape_map())
        names = sorted(stored) if names is None else names
        return {
            name: _value(reader, *stored.get(name, (name, False))) for name in names
        }
    except _DAMAGE as error:
        raise _damaged(prefix, error) from error


def _reader(prefix):
    # Not tf.train.load_checkpoint, which takes a prefix for a folder where the file system
    # has none: it lists what begins with the name.
    return tf.compat.v1.train.NewCheckpointReader(prefix)


def _value(reader, name, transposed):
    value = reader.get_tensor(name)
    return np.ascontiguousarray(value.T) if transposed else value


def shapes_of(prefix: str) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors at what `resolve` returned, by name; see `read`."""
    if format := _other(prefix):
        return format.shapes(prefix)
    if not peft.is_weights(prefix):
        stored = shapes_of_stored(prefix)
        if not adapters.are_in(stored):
            return stored
    # Without the values of the base, which whoever loads them reads, too.
    note, own = adapters_of(prefix)
    base, own = _of_base(base_shapes, note, prefix), _shapes(own)
    adapters.check_fits(base, own, prefix)
    return base | {name: own[name] for name in adapters.others(own)}


def shapes_of_stored(prefix: str) -> dict[str, tuple[int, ...]]:
    """Like `shapes_of`, for a bundle, but adapters are listed as they are."""
    try:
        shapes = _reader(prefix).get_variable_to_shape_map()
    except _DAMAGE as error:
        raise _damaged(prefix, error) from error
    return {
        own: tuple(shapes[name][:: -1 if transposed else 1])
        for own, (name, transposed) in table.released_names(shapes).items()
    }


def _damaged(prefix: str, error: Exception) -> UserError:
    reason = " ".join(str(getattr(error, "message", None) or error).split())
    return UserError(
        f"{prefix}: the checkpoint is damaged or incomplete ({reason}); copy or "
        "download all its files again, or use another one"
    )


# --- Loading --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Which variables a checkpoint set, and what was left over on either side."""

    source: str
    matched: list[str]
    initial: list[str]  # variables of the model that the checkpoint does not have
    unused: list[str]  # entries of the checkpoint that the model does not have

    def __str__(self) -> str:
        total = len(self.matched) + len(self.initial)
        lines = [f"{self.source}: {len(self.matched)} of {total} variables matched"]
        for title, names, most in (
            ("left at their initial value", self.initial, len(self.initial)),
            ("unused in the checkpoint", self.unused, _MOST_UNUSED),
        ):
            if names:
                lines.append(f"  {title} ({len(names)}): {grouped(names, most)}")
        return "\n".join(lines)


def grouped(names: Collection[str], most: int | None = None) -> str:
    """Names in one line.

    Args:
        most: if there are more, what the names begin with instead.
    """
    parts = groups(names)
    if most and len(parts) > most:
        parts = groups(names, lambda name: re.sub("([/.]).*", r"\1*", name))
    return ", ".join(parts)


def groups(names, folded=lambda name: _LAYER.sub(r"\1_*", name)) -> list[str]:
    """Names, in which layers, and an optimizer's slots, are folded together."""
    weights = [name for name in sorted(names) if not _SLOT.match(name)]
    number = collections.Counter(map(folded, weights))
    parts = [name if n == 1 else f"{name} x {n}" for name, n in number.items()]
    slots = collections.Counter(
        "*/adagrad" if slot[2] else f"*{slot[1] or slot[3]}*"
        for slot in map(_SLOT.match, names)
        if slot
    )
    return parts + [f"{name} x {n}" for name, n in slots.items()]


def load(
    variables: Mapping[str, object],
    path: str,
    required: str | tuple[str, ...] | None = None,
    scope: str = "",
) -> LoadReport:
    """Sets variables from the checkpoint's entries of the same names.

    Nothing is set unless everything fits. Entries without a variable (another head,
    optimizer slots, global_step) are ignored and reported.

    Args: see `match`.
    """
    report = match(variables, path, required, scope)
    for name, value in read(report.source, report.matched).items():
        variables[name].assign(value)
    return report


def match(
    variables: Mapping[str, object],
    path: str,
    required: str | tuple[str, ...] | None = None,
    scope: str = "",
) -> LoadReport:
    """Compares variables with the checkpoint's entries of the same names; sets nothing.

    Args:
        variables: names to Keras or TensorFlow variables.
        path: see `resolve`.
        required: variables whose names begin with this must be in the checkpoint; ""
            means all.
        scope: what the names of the encoder's variables begin with; errors in others are
            attributed to the head.
    Raises:
        UserError: shapes differ, required names are missing, nothing
            matches, or the checkpoint is damaged.
    """
    prefix = resolve(path)
    shapes = shapes_of(prefix)
    networks.check_wanted(prefix, shapes, variables)
    report = LoadReport(
        source=prefix,
        matched=sorted(variables.keys() & shapes),
        initial=sorted(variables.keys() - shapes),
        unused=sorted(shapes.keys() - variables),
    )
    if wrong := _differing(variables, shapes):
        raise UserError(
            f"{prefix}: {_guess(wrong, scope)}: {_first(list(wrong.values()), 3)}"
        )
    networks.check_whole(prefix, shapes, variables)
    if peft.is_weights(prefix):
        adapters.check_head(*adapters_of(prefix), variables, prefix)
    missing = [
        name
        for name in report.initial
        if required is not None
        and name.startswith(required)
        and not adapters.are_in([name])  # as a whole, a checkpoint has none
    ]
    if missing or not report.matched:
        what = "all variables of the model"
        if report.matched:
            what = _first(groups(missing), 4, ", ")
        advice = (
            "check that it is the right checkpoint and bert_config_file; it contains "
            f"{grouped(shapes, 4) or 'nothing'}"
        )
        if missing and not any(name.startswith(scope) for name in missing):
            advice = networks.advice(missing, shapes) or (
                "an encoder without this head cannot answer; train it first, or pass the "
                "--output_dir of a training that has it"
            )
        raise UserError(f"{prefix}: not in the checkpoint: {what}; {advice}")
    return report


def _guess(wrong, scope) -> str:
    """Why variables have other shapes in the checkpoint, and what to do."""
    if named_network := networks.of_names(wrong):
        name, network = named_network
        return f"its {name} does not fit the model; check {network.flags}"
    if not any(name.startswith(scope) for name in wrong):
        return (
            "its head does not fit the model; check the number of labels, or leave the "
            "head out with --init_encoder_only"
        )
    return f"does not fit the model; check {setting('bert_config_file')}"


def _first(parts: list[str], number: int, between: str = "; ") -> str:
    """The first of them, and how many more there are."""
    more = [f"and {len(parts) - number} more"] if len(parts) > number else []
    return between.join(parts[:number] + more)


def _differing(variables, shapes) -> dict[str, str]:
    """Describes each variable whose shape differs in the checkpoint."""
    return {
        name: f"{name} is {_size(shapes[name])} in the checkpoint and "
        f"{_size(variables[name].shape)} in the model"
        for name in sorted(variables.keys() & shapes)
        if tuple(shapes[name]) != tuple(variables[name].shape)
    }


def _size(shape) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def read_config(path: str) -> config.EncoderConfig:
    """Reads the architecture of a model.

    Args:
        path: a bert_config.json, a Hugging Face config.json, a directory with one, or an
            address. An adapter_config.json of peft means the config of its base, with the
            adapter's head.
    """
    path = folder = hub.local(path, "config")
    if anywhere.isdir(path):
        path = find_config(path) or os.path.join(path, CONFIGS[0])
    if not anywhere.exists(path):
        remedy = f"pass {setting('bert_config_file')}"
        if folder != path and (released := bilm.find(folder)):
            bilm.shapes(released)  # refuses it
        if folder != path and hugging_face.find(folder):
            path = os.path.join(folder, "config.json")
            remedy = f"copy it from where the model is from, or {remedy}"
        raise UserError(f"{path}: no such file; {remedy}")
    their_class = None
    if os.path.basename(path) == peft.CONFIG:
        path, their_class = _config_of_base(path)
    values = json_files.read_object(path, "use the bert_config.json of a model")
    if their_class and "model_type" in values:
        values["architectures"] = [their_class]
    try:
        return table.config_from_json(values)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _config_of_base(path):
    """The config of an adapter's base, and Hugging Face's class for the adapter's head."""
    prefix = os.path.join(os.path.dirname(path), peft.WEIGHTS)
    folder = folder_of_base(prefix)
    if not (found := find_config(folder)):
        raise UserError(f"{folder}: contains no config; copy that of the model there")
    return found, peft.read(prefix).their_class


def find_config(folder: str) -> str | None:
    """The config in the folder of a model, if there is one."""
    paths = (os.path.join(folder, name) for name in CONFIGS)
    return next(filter(anywhere.exists, paths), None)


def digest(weights: Mapping[str, np.ndarray]) -> str:
    """Identifies a network's weights: SHA-256 of names and values, in hexadecimal."""
    sha256 = hashlib.sha256()
    for name, value in sorted(weights.items()):
        sha256.update(name.encode())
        sha256.update(np.ascontiguousarray(value))
    return sha256.hexdigest()


# --- A run's own checkpoints ---------------------------------------------------------


def save(
    folder: Folder,
    step: int,
    tensors: Mapping[str, object],
    keep: int,
    always: Collection[int] = (),
) -> str:
    """Writes `model.ckpt-<step>` and names it in the state file; drops the oldest.

    Equal tensors give equal bytes.

    Args:
        tensors: names to arrays or tensors.
        keep: how many checkpoints to keep; 0 keeps all. Those later than `step`, which
            exist only after a checkpoint was damaged, are neither counted nor dropped.
        always: steps whose checkpoints are kept besides.
    Returns:
        The checkpoint's prefix.
    Raises:
        UserError: the disk is full or not writable, or another process has taken over
            the training.
    """
    folder.check_held()
    folder.claim()
    prefix = folder.prefix(step)
    write_bundle(prefix, tensors)
    folder.keep_newest(step, keep, always)
    return prefix


def write_bundle(prefix: str, tensors: Mapping[str, object]) -> None:
    """Writes one bundle atomically; see `save`."""
    temporary = local.temporary_name(prefix)
    names = sorted(tensors)
    with anywhere.access(prefix):
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
        )
        for part in PARTS:
            anywhere.sync(temporary + part)
        for part in PARTS:
            anywhere.rename(temporary + part, prefix + part, overwrite=True)


def newest(folder: Folder) -> tuple[str, dict[str, np.ndarray]] | None:
    """Reads the newest undamaged checkpoint of a run; warns of those it skipped.

    Going back to an older one is safe: the run repeats the updates in between exactly.

    Returns:
        Its prefix and all its tensors; None if there is no checkpoint.
    Raises:
        UserError: there are checkpoints, but all are damaged.
    """
    damaged = []
    for step in reversed(folder.steps):
        prefix = folder.prefix(step)
        try:
            tensors = read_stored(prefix)
        except UserError as error:
            folder.reopen()
            if step not in folder.steps:
                return newest(folder)  # a running training has just dropped it
            damaged.append(str(error))
            continue
        for line in damaged:
            print(f"warning: {line}; continuing from {prefix}", file=sys.stderr)
        return prefix, tensors
    if damaged:
        raise UserError("no checkpoint of the run is intact: " + "; ".join(damaged))
    return None


def check_complete(
    prefix: str, variables: Mapping[str, object], tensors: Mapping[str, np.ndarray]
) -> None:
    """Refuses to resume from a checkpoint that is not from exactly this model."""
    needed = variables.keys() | {"global_step"}
    problems = [f"{name} is missing" for name in sorted(needed - tensors.keys())]
    shapes = {name: value.shape for name, value in tensors.items()}
    problems += _differing(variables, shapes).values()
    if problems:
        if adapters.are_in(tensors):
            adapters.read_note(os.path.dirname(prefix))  # says if that is missing
        raise UserError(
            f"{prefix}: not a checkpoint of this run; choose another output_dir, or pass "
            f"it as --init_checkpoint: {_first(problems, 5)}"
        )
