"""Checks records, counts their contents, and shows them."""
