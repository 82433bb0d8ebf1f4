"""Reads documents and stores them on disk as flat ids and offsets."""
