"""Turns text into record files: shards, workers, and resuming interrupted runs."""
