"""What the tokenizer_config.json next to a Hugging Face model says about its text."""

import os
from collections.abc import Mapping

from errors import UserError, setting
from text.tokenizers import recorded_settings, tokenizer_json
from text.tokenizers.kind import Kind
from training.interchange.hugging_face import is_weights


def settings_of(path: str, kind: Kind) -> dict:
    """The flags of a tokenizer that the tokenizer_config.json next to weights decides.

    Arguments as for `check`.
    """
    if not is_weights(path):
        return {}
    return recorded_settings.hugging_face(os.path.dirname(path), kind)


def check(path: str, settings: Mapping[str, object], kind: Kind) -> None:
    """Refuses settings that contradict Hugging Face's files next to weights.

    Args:
        path: what `checkpoint.resolve` returned; without such files, anything passes.
        settings: those of the `Tokenizer` to be used.
        kind: its kind.
    """
    folder = os.path.dirname(path)
    config_file = os.path.join(folder, recorded_settings.TOKENIZER_CONFIG)
    if not is_weights(path):
        return
    config = recorded_settings.tokenizer_config(folder)
    classes = kind.hugging_face_classes
    if config is None:
        config_file = tokenizer_json.path_in(folder)
    elif (named := config.get("tokenizer_class")) not in classes:
        raise UserError(
            f"{config_file}: tokenizer_class is {named!r}, which does not split text as "
            f"{' or '.join(filter(None, classes))} does; pass the "
            f"{setting('vocab_file')} next to it, or use another model"
        )
    flags = [
        setting(name, value)
        for name, value in recorded_settings.hugging_face(folder, kind).items()
        if value != settings.get(name, value)
    ]
    if flags:
        raise UserError(
            f"{config_file}: the model was trained on text split differently; pass "
            f"{' '.join(flags)}"
        )
