"""The kinds of rows and of masks by name. A new kind is a file and a row here."""

import dataclasses
from collections.abc import Mapping

import options
from text.errors import UserError
from text.instances.dynamic_masks import DynamicMasks
from text.instances.full_sentences import DocSentences, FullSentences
from text.instances.instances import Instances, Recipe
from text.instances.pairs import Pairs
from text.instances.static_masks import StaticMasks

INSTANCES = {
    "pairs": Pairs,
    "full_sentences": FullSentences,
    "doc_sentences": DocSentences,
}
MASKS = {"static": StaticMasks, "dynamic": DynamicMasks}


@dataclasses.dataclass(frozen=True)
class RowOptions(Recipe):
    """The flags that decide what rows hold, and of which kind they are."""

    instances: str = options.field(
        "pairs",
        choices=tuple(INSTANCES),
        help="What a record is. pairs: two spans and whether the second follows the "
        "first, as in the release. full_sentences: as many sentences as fit, across "
        "documents, for --objective=masked_lm; doc_sentences: of one document. Their rows "
        "are the same in every pass.",
    )
    masking: str = options.field(
        "static",
        choices=tuple(MASKS),
        help="static: choose the tokens to predict now, as in the release. dynamic: leave "
        "that to run_pretraining.py, which chooses anew in every epoch, by the same flags.",
    )

    @classmethod
    def of(cls, flags: Mapping, path: str) -> "RowOptions":
        """The flags of records, as their description has them.

        Args:
            flags: what is absent counts as its default.
            path: of the description.
        Raises:
            UserError: the records are of a kind that this version does not know.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        recipe = cls(**{name: value for name, value in flags.items() if name in names})
        for name, table in (("instances", INSTANCES), ("masking", MASKS)):
            if getattr(recipe, name) not in tuple(table):
                raise UserError(
                    f"{path}: was made with --{name}={getattr(recipe, name)}; this "
                    f"version knows {', '.join(table)}"
                )
        return recipe

    def make(self) -> Instances:
        """The rows that these flags ask for."""
        return INSTANCES[self.instances](self, MASKS[self.masking](self))
