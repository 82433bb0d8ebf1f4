"""Lists the kinds of rows and masks by name: the core's, and those of extensions."""

import dataclasses
from collections.abc import Callable

import extensions
import options
from errors import UserError
from text.instances.full_sentences import DocSentences, FullSentences
from text.instances.instances import Instances, RecordOptions
from text.instances.masking import MasksInTraining, StaticMasks
from text.instances.packed_documents import PackedDocuments
from text.instances.pairs import PairOptions, Pairs
from text.records.descriptions import Description

INSTANCES = {
    "pairs": Pairs,
    "full_sentences": FullSentences,
    "doc_sentences": DocSentences,
    "packed": PackedDocuments,
}
INSTANCES |= extensions.load_rows("instances", INSTANCES)
MASKS = {"static": StaticMasks, "dynamic": MasksInTraining}


@dataclasses.dataclass(frozen=True)
class RowOptions(PairOptions, *extensions.classes("row_options"), RecordOptions):
    """Records. The kind of rows and what they contain."""

    instances: str = options.field(
        "pairs",
        choices=INSTANCES,
        help="The kind of record. pairs: two spans and whether the second follows the "
        "first, as in the release. full_sentences: as many sentences as fit, across "
        "documents, for run_pretraining.py --objective=masked_lm; doc_sentences: the same "
        "within a document. packed: rows without padding, of documents that do not see "
        "each other. Rows of these three are the same in every pass."
        + extensions.help_of("instances"),
    )
    masking: str = options.field(
        "static",
        choices=MASKS,
        help="static: choose the tokens to predict now, as in the release. dynamic: leave "
        "that to run_pretraining.py, which chooses new ones every epoch, by these flags.",
    )

    @classmethod
    def of(cls, description: Description) -> "RowOptions":
        """The flags of described records; missing ones have their defaults."""
        flags = dict(description.flags)
        for name in ("max_seq_length", "max_predictions_per_seq"):
            if (size := getattr(description, name)) is not None:
                flags[name] = size
        for name, table in (("instances", INSTANCES), ("masking", MASKS)):
            # A value may be a list, say, which a dict could not look up.
            if flags.get(name, getattr(cls, name)) not in tuple(table):
                raise UserError(
                    f"{description.path}: was made with --{name}={flags[name]}; this "
                    f"version supports {', '.join(table)}"
                )
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in flags.items() if name in names})

    @classmethod
    def of_release(
        cls, is_it: Callable[[Instances], bool] = lambda _: False, **sizes
    ) -> "RowOptions":
        """The flags of records that a release wrote, which have no description.

        Args:
            is_it: whether records are of this kind; BERT's are of none for which it is so.
        """
        for name, kind in INSTANCES.items():
            if kind.released is not None:
                options = cls(instances=name, **kind.released, **sizes)
                if is_it(options.make_instances()):
                    return options
        return cls(**sizes)

    def make_instances(self) -> Instances:
        """The rows that these flags ask for."""
        return INSTANCES[self.instances](self, MASKS[self.masking](self))
