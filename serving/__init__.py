"""Exported models: how they are written, loaded, queried and served."""
