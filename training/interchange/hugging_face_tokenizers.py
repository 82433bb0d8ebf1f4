"""What the tokenizer_config.json next to a Hugging Face model says about its text."""

import os
from collections.abc import Callable, Container, Mapping

from errors import UserError
from text.tokenizers import recorded_settings
from text.tokenizers.tokenizer import Tokenizer
from training.interchange.hugging_face import is_weights


def settings_of(path: str, read: Callable[[Mapping], Mapping]) -> dict:
    """The flags of a tokenizer that the tokenizer_config.json next to weights decides.

    Arguments as for `check`.
    """
    if not is_weights(path):
        return {}
    return recorded_settings.hugging_face(os.path.dirname(path), read)


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
    folder = os.path.dirname(path)
    config = os.path.join(folder, recorded_settings.TOKENIZER_CONFIG)
    said = recorded_settings.tokenizer_config(folder) if is_weights(path) else None
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
        for name, value in recorded_settings.hugging_face(folder, read).items()
        if value != settings.get(name, value)
    ]
    if flags:
        raise UserError(
            f"{config}: the model was trained on text split differently; pass "
            f"{' '.join(flags)}"
        )
