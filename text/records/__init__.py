"""Reads, writes and describes records, and batches them in a reproducible order."""
