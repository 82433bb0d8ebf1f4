"""Lists the objectives of pre-training by name: the core's, and those of extensions.

This module loads no Keras, so that help texts can list the names at once.
"""

import dataclasses
import pkgutil
from typing import NamedTuple

import extensions


class ObjectiveRow(NamedTuple):
    """A row of the table.

    Attributes:
        name: "module:class" of an `Objective`.
        group_name: that of the group of its flags, the arguments of its constructor; None
            if it has none.
    """

    name: str
    group_name: str | None = None

    @property
    def group(self) -> type | None:
        """The group of its flags, an `options.Group`."""
        return self.group_name and pkgutil.resolve_name(self.group_name)

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its flags."""
        return (
            tuple(f.name for f in dataclasses.fields(self.group)) if self.group else ()
        )

    def load(self) -> type:
        """Imports and returns the class."""
        return pkgutil.resolve_name(self.name)


OBJECTIVES = {
    "masked_lm_next_sentence": ObjectiveRow(
        "modeling.objectives.sentence_pairs:MaskedLMNextSentence"
    ),
    "masked_lm": ObjectiveRow("modeling.objectives.masked_lm:MaskedLM"),
}
OBJECTIVES |= {
    name: ObjectiveRow(*row)
    for name, row in extensions.rows("objectives", OBJECTIVES).items()
}
