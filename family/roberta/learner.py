"""Learns RoBERTa's vocab.json and merges.txt."""

from family.roberta.tokenizer import SPECIAL, RobertaKind
from text.tokenizers.learning.bpe_learning import ByteBpeLearner

_PAD, _UNK, _CLS, _SEP, _MASK = SPECIAL.names


class RobertaLearner(ByteBpeLearner):
    """<s>, <pad>, </s> and <unk> come first and <mask> last, as in RoBERTa."""

    kind = RobertaKind()
    first_tokens, last_tokens = (_CLS, _PAD, _SEP, _UNK), (_MASK,)
