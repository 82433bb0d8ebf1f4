"""What run_text_to_text.py is given: small files in a folder, and a run on them."""

from tests.family.t5 import runs


def _of_text_to_text(folder):
    return runs.flags(runs.write_files(folder))


_TRAIN = {"output_dir": "out", "do_train": True, "do_eval": True}
SCRIPTS = {"run_text_to_text": (_of_text_to_text, _TRAIN)}
# The answers that its own predictions have.
ANSWERING = {"run_text_to_text.py": (runs.write_files, runs.run, ("predicted",))}
