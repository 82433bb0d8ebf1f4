"""Asks a checkpoint without an export: features, masked words, continuations."""
