"""Turns strings into ids and records; independent of any model."""
