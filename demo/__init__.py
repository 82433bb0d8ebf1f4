"""The whole pipeline on text found on every machine."""
