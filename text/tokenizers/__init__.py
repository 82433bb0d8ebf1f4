"""Turns text into ids: the vocabulary, the tokenizer, and its twin in a graph."""
