"""What the tokenizer_config.json next to a Hugging Face model says about its text."""

import json
import os
from collections.abc import Callable, Container, Mapping

import tensorflow as tf

from text.errors import UserError
from text.files import anywhere
from text.tokenizers.tokenizer import Tokenizer
from training.layouts.hugging_face import is_weights


def settings_of(path: str, read: Callable[[Mapping], Mapping]) -> dict:
    """The flags of a tokenizer that the tokenizer_config.json next to weights decides.

    Arguments as for `check`.
    """
    _, said = _tokenizer_config(path)
    known = {} if said is None else read(said)
    return {name: value for name, value in known.items() if value is not None}


def _tokenizer_config(path):
    """The tokenizer_config.json next to weights, and its content; None without one."""
    config = os.path.join(os.path.dirname(path), "tokenizer_config.json")
    if not is_weights(path) or not tf.io.gfile.exists(config):
        return config, None
    try:
        with anywhere.access(config), tf.io.gfile.GFile(config, "rb") as file:
            return config, dict(json.loads(file.read()))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{config}: not a tokenizer's JSON ({error})") from error


def check(
    path: str,
    settings: Mapping[str, object],
    classes: Container[str | None],
    read: Callable[[Mapping], Mapping] = Tokenizer.hugging_face_settings,
) -> None:
    """Refuses settings that contradict the tokenizer_config.json next to weights.

    Args:
        path: what `checkpoint.resolve` returned; without such a file, anything passes.
        settings, classes, read: `settings`, `hugging_face_classes` and
            `hugging_face_settings` of the `Tokenizer` to be used.
    Raises:
        UserError: names the flags to pass.
    """
    config, said = _tokenizer_config(path)
    if said is None:
        return
    if (theirs := said.get("tokenizer_class")) not in classes:
        raise UserError(
            f"{config}: tokenizer_class is {theirs!r}, which does not split text as "
            f"{' or '.join(filter(None, classes))} does; pass the --vocab_file next to "
            "it, or use another model"
        )
    flags = [
        f"--{name}={str(value).lower()}"
        for name, value in read(said).items()
        if value is not None and value != settings.get(name, value)
    ]
    if flags:
        raise UserError(
            f"{config}: the model was trained on text split differently; pass "
            f"{' '.join(flags)}"
        )
