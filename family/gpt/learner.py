"""Learns GPT-1's encoder_bpe.json and vocab.bpe."""

import functools

from errors import UserError
from family.gpt.tokenizer import END, UNKNOWN, GptBpeKind, GptWords
from text.tokenizers.bpe import MERGES
from text.tokenizers.learning.bpe_learning import BpeLearner, learn_merges
from text.tokenizers.table import OpenVocabulary


class GptBpeLearner(BpeLearner):
    """Learns GPT-1's encoder_bpe.json and vocab.bpe.

    <unk> comes first, as in the release, then the characters, within a word and at its end,
    and the line break; then the pieces merged from them, most frequent first.
    """

    kind = GptBpeKind()
    file_names = "be encoder_bpeNAME.json"

    vocab_size = 40478

    def fixed_tokens(self):
        return 2, f"{UNKNOWN} plus a line break"

    def check(self):
        path = self.options.output_file
        file = OpenVocabulary.open(path).file
        if self.kind.merges_name(file.name) == MERGES:
            raise UserError(f"--output_file={path}: its name must {self.file_names}")
        self.kind.resolve(self.options, file)

    @functools.cached_property
    def splitter(self):
        return GptWords()

    def pieces(self):
        options = self.options
        characters = self.frequent_characters()
        ends = [character + END for character in ["\n", *characters]]
        least = 1 + len(characters) + len(ends)
        if options.vocab_size < least:
            raise UserError(
                f"--vocab_size={options.vocab_size} is too small: <unk> and two tokens for "
                f"each of {len(characters)} characters need {least}; raise it or "
                "--min_character_count"
            )
        tokens, merges = learn_merges(
            self.counts.words,
            [*characters, *ends],
            options.vocab_size - 1,
            options.min_frequency,
            set(characters).issuperset,
            end_of_word_suffix=END,
        )
        return [UNKNOWN, *tokens], merges
