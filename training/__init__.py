"""A run: steps, evaluation, checkpoints, distribution, reports; knows no task."""

import os

# The loop is tf.distribute's, so Keras must run on TensorFlow whatever the user's
# keras.json says; TensorFlow reads its log level once, on import.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
