"""Learns the vocabularies of BPE: tokens in the order of their ids, and merges."""

import json
from collections.abc import Callable, Mapping, Sequence

import tokenizers

from errors import UserError
from text.tokenizers import byte_bpe, gpt_bpe, word_counts
from text.tokenizers.word_by_word import Splitter
from text.tokenizers.word_counts import WordCounts
from text.tokenizers.wordpiece_learning import frequent_characters

Learned = tuple[list[str], list[tuple[str, str]]]


def learn_byte_bpe(
    counts: WordCounts, *, vocab_size: int, min_frequency: int
) -> Learned:
    """Learns byte-level BPE.

    <s>, <pad>, </s> and <unk> come first and <mask> last, as in RoBERTa; then the bytes,
    then the pieces merged from them, most frequent first.
    """
    pad, unk, cls, sep, mask = byte_bpe.ROBERTA.names
    first = [cls, pad, sep, unk]
    tokens, merges = _learned(
        counts.words,
        sorted(byte_bpe.byte_characters()),
        vocab_size - len(first) - 1,
        min_frequency,
        lambda word: True,
    )
    return [*first, *tokens, mask], merges


def learn_gpt_bpe(
    counts: WordCounts,
    splitter: Splitter,
    *,
    vocab_size: int,
    min_character_count: int,
    min_frequency: int,
) -> Learned:
    """Learns BPE for GPT-1.

    <unk> comes first, as in the release, then the characters, within a word and at its end,
    and the line break; then the pieces merged from them, most frequent first.

    Raises:
        UserError: vocab_size has no room for the characters.
    """
    characters = frequent_characters(counts, splitter, min_character_count)
    ends = [character + gpt_bpe.END for character in ["\n", *characters]]
    least = 1 + len(characters) + len(ends)
    if vocab_size < least:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: <unk> and two tokens for each of "
            f"{len(characters)} characters need {least}; raise it or --min_character_count"
        )
    tokens, merges = _learned(
        counts.words,
        [*characters, *ends],
        vocab_size - 1,
        min_frequency,
        set(characters).issuperset,
        end_of_word_suffix=gpt_bpe.END,
    )
    return [gpt_bpe.UNKNOWN, *tokens], merges


def _learned(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
    is_known: Callable[[str], bool],
    **marks: str,
) -> Learned:
    model = tokenizers.Tokenizer(tokenizers.models.BPE(**marks))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(alphabet),  # a fixed order of ids
        show_progress=False,
        **marks,
    )
    word_counts.train(model, trainer, words, is_known)
    ids = model.get_vocab()
    merges = json.loads(model.to_str())["model"]["merges"]
    return sorted(ids, key=ids.get), list(map(tuple, merges))
