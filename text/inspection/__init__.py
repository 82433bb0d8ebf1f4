"""Checks records, counts what they hold, and shows it."""
