"""Networks of keras.layers and keras.ops; knows no text, no files, no backend."""
