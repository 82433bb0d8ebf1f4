"""Lists what inspection knows of each kind of rows and masks, by the kinds' names."""

import extensions
from text.inspection.inspector import Inspector
from text.inspection.mask_inspectors import StaticMaskInspector, WordStartInspector
from text.inspection.packed_inspector import PackedInspector
from text.inspection.row_inspectors import (
    DocSentencesInspector,
    FullSentencesInspector,
    PairInspector,
)
from text.instances.table import RowOptions
from text.tokenizers.vocabulary import Vocabulary

INSPECTORS = {
    "pairs": PairInspector,
    "full_sentences": FullSentencesInspector,
    "doc_sentences": DocSentencesInspector,
    "packed": PackedInspector,
}
INSPECTORS |= extensions.load_rows("inspectors", INSPECTORS)
MASKS = {"static": StaticMaskInspector, "dynamic": WordStartInspector}


def make_inspector(
    options: RowOptions, vocabulary: Vocabulary, is_described: bool = True
) -> Inspector:
    """The inspector of records with these flags; see `MaskInspector`."""
    masks = MASKS[options.masking](options, vocabulary, is_described)
    return INSPECTORS[options.instances](options, vocabulary, masks)
