"""Documents in, flat ids and offsets on disk."""
