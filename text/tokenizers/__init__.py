"""Turns text into ids: the vocabulary and the tokenizer."""
