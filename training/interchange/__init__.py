"""Checkpoints under the names of other libraries, one table per architecture."""
