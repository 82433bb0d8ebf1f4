"""Strings to ids to records; knows no models."""
