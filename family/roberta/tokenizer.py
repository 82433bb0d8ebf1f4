"""RoBERTa's vocabulary: byte-level BPE with its special tokens."""

from tokenizers import processors

import extensions
from errors import UserError
from text.tokenizers.bpe import ByteBpe, ByteBpeKind
from text.tokenizers.kind import hugging_face_classes
from text.tokenizers.tokenizer import HuggingFaceFiles
from text.tokenizers.vocabulary import SpecialTokens

# RoBERTa separates two texts with two tokens, and has no segments.
SPECIAL = SpecialTokens(
    ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    separators=2,
    second_segment=0,
    continuation="",  # it is a word's beginning that is marked, with its space
)


class RobertaBpe(ByteBpe):
    """Turns text into pieces exactly like Hugging Face's RoBERTa tokenizer."""

    def hugging_face(self):
        # Without the entry for the mask, transformers would keep a space before it.
        mask = {"content": self.vocabulary.mask, "lstrip": True, "rstrip": False}
        kind = {"__type": "AddedToken", "normalized": False, "single_word": False}
        config = {"tokenizer_class": "RobertaTokenizer", "mask_token": kind | mask}
        ids = self.vocabulary.sep_id, self.vocabulary.cls_id
        end, first = ((self.vocabulary.tokens[id], id) for id in ids)
        rows = processors.RobertaProcessing(end, first, add_prefix_space=False)
        return HuggingFaceFiles(config, self.json(rows))


class RobertaKind(ByteBpeKind):
    """RoBERTa's vocab.json and merges.txt."""

    learner = "family.roberta.learner:RobertaLearner"
    tokenizer, special = RobertaBpe, SPECIAL
    hugging_face_classes = hugging_face_classes("RobertaTokenizer")

    def reads(self, file):
        return file.name.endswith(".json")

    def vocabulary_of(self, path, tokens, digest):
        present = set(tokens)
        if missing := [token for token in SPECIAL.names if token not in present]:
            raise UserError(
                f"{path}: has no token {' or '.join(missing)}; RoBERTa's vocab.json "
                f"contains {' '.join(SPECIAL.names)}, unlike GPT-2's encoder.json"
                f"{extensions.hint()}"
            )
        return super().vocabulary_of(path, tokens, digest)
