"""Reads and writes files, local or remote: atomic, with one writer, strictly UTF-8."""
