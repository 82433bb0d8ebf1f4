"""Nearest neighbors of vectors: exact search, files of vectors, indexes."""
