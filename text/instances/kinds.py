"""Lists the kinds of rows and masks by name. A new kind is a file and a row here."""

import dataclasses

import options
from errors import UserError
from text.instances.contiguous import Contiguous
from text.instances.electra_segments import ElectraSegments
from text.instances.full_sentences import DocSentences, FullSentences
from text.instances.instances import Instances, Recipe
from text.instances.pairs import Pairs
from text.instances.sentence_order import SentenceOrder
from text.instances.static_masks import StaticMasks
from text.instances.unmasked import Unmasked
from text.instances.xlnet_release import GivenMasks, XlnetRelease, XlnetReleaseBothWays
from text.records.descriptions import Description

INSTANCES = {
    "pairs": Pairs,
    "full_sentences": FullSentences,
    "doc_sentences": DocSentences,
    "sentence_order": SentenceOrder,
    "electra": ElectraSegments,
    "contiguous": Contiguous,
}
MASKS = {"static": StaticMasks, "dynamic": Unmasked}
# What is read and never written.
_RELEASED_INSTANCES = {
    "xlnet_release": XlnetRelease,
    "xlnet_release_bi": XlnetReleaseBothWays,
}
_RELEASED_MASKS = {"given": GivenMasks}


@dataclasses.dataclass(frozen=True)
class RowOptions(Recipe):
    """The flags that determine the kind of rows and their contents."""

    instances: str = options.field(
        "pairs",
        choices=tuple(INSTANCES),
        help="The kind of record. pairs: two spans and whether the second follows the "
        "first, as in the release. full_sentences: as many sentences as fit, across "
        "documents, for run_pretraining.py --objective=masked_lm; doc_sentences: the same "
        "within a document. Rows of these two are the same in every pass. sentence_order: "
        "two consecutive spans and whether they are swapped, as in ALBERT. electra: "
        "sentences of a document in one segment or two, as in ELECTRA. contiguous: rows "
        "that continue those of the batch before, for a model with memory, as in XLNet.",
    )
    masking: str = options.field(
        "static",
        choices=tuple(MASKS),
        help="static: choose the tokens to predict now, as in the release. dynamic: leave "
        "that to run_pretraining.py, which chooses new ones every epoch, by these flags.",
    )

    @classmethod
    def of(cls, description: Description) -> "RowOptions":
        """The flags of described records; missing ones have their defaults.

        Raises:
            UserError: the records are of a kind unknown to this version.
        """
        said = dict(description.flags)
        for name in ("max_seq_length", "max_predictions_per_seq"):
            if (size := getattr(description, name)) is not None:
                said[name] = size
        names = {field.name for field in dataclasses.fields(cls)}
        recipe = cls(**{name: value for name, value in said.items() if name in names})
        tables = {
            "instances": (INSTANCES, _RELEASED_INSTANCES),
            "masking": (MASKS, _RELEASED_MASKS),
        }
        for name, (table, released) in tables.items():
            if getattr(recipe, name) not in (*table, *released):
                raise UserError(
                    f"{description.path}: was made with "
                    f"--{name}={getattr(recipe, name)}; this version supports "
                    f"{', '.join(table)}"
                )
        return recipe

    @classmethod
    def of_release(cls, sentence_task: str, **sizes) -> "RowOptions":
        """The flags of records that BERT's or ALBERT's release wrote.

        Args:
            sentence_task: what their labels are about; see `Instances`.
        """
        if sentence_task == "sentence_order":
            return cls(
                instances="sentence_order", lone_sentences="random", ngram=3, **sizes
            )
        return cls(**sizes)

    def make(self) -> Instances:
        """The rows that these flags ask for."""
        masks = {**MASKS, **_RELEASED_MASKS}[self.masking](self)
        return {**INSTANCES, **_RELEASED_INSTANCES}[self.instances](self, masks)
