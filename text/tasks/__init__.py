"""Provides the text processing of fine-tuning tasks: windows and spans, tags, [MASK]."""
