"""Writes, loads, queries and serves exported models."""
