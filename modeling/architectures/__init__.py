"""Encoders and their configs, and T5's decoder: one architecture a file or three."""
