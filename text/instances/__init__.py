"""Defines which spans of a corpus form a row, how they are packed, and what is masked."""
