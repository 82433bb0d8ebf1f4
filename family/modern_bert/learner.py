"""Learns ModernBERT's vocab.json and merges.txt."""

from family.modern_bert import normal_form
from family.modern_bert.tokenizer import SPECIAL, ModernBertKind
from text.tokenizers.bpe import ByteSplitter
from text.tokenizers.learning.bpe_learning import ByteBpeLearner


class _Splitter(ByteSplitter):
    """Words of text in form C."""

    def chunks(self, text):
        return super().chunks(normal_form.normalize(text))


class ModernBertLearner(ByteBpeLearner):
    """The special tokens come last, as in ModernBERT."""

    kind = ModernBertKind()
    file_names = "be vocab.json"
    first_tokens, last_tokens = (), SPECIAL.tokens
    splitter = _Splitter()
