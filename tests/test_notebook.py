"""The notebook: what a reader sees of it on a forge, and what it does when it is run."""

import re

import nbclient
import nbformat
import pytest

import tests

NOTEBOOK = tests.ROOT / "docs" / "notebooks" / "keras.ipynb"
PICTURES = 4


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook, kind):
    """The outputs of a MIME type, or the texts of a stream."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "stream":
                if output.name == kind:
                    yield output.text
            elif kind in output.get("data", {}):
                yield output.data[kind]


def check_results(notebook):
    """It has its curve and other pictures, and what it prints makes sense."""
    assert len(list(outputs(notebook, "image/png"))) == PICTURES
    printed = "".join(outputs(notebook, "stdout"))
    assert not list(outputs(notebook, "stderr"))
    scores = re.search(r"held-out accuracy (\S+), constant answer (\S+)\n", printed)
    accuracy, constant = map(float, scores.groups())
    # The text is that of the project, so both change with it.
    assert 0.5 < constant < 0.75 and accuracy > constant + 0.1
    difference = re.search(r"difference in the SavedModel: (\S+)\n", printed).group(1)
    assert float(difference) < 1e-5
    assert "model.safetensors" in printed


def test_a_reader_sees_what_the_notebook_shows():
    """Stored outputs: in order, with pictures, without paths of the machine that ran it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    check_results(notebook)
    for text in outputs(notebook, "stdout"):
        assert not re.search(r"/(home|root|tmp|work|Users)\b", text), text


@pytest.mark.exhaustive  # a minute; the outputs that the other test reads are of a run
def test_the_notebook_runs_as_it_is(tmp_path, monkeypatch):
    # Neither settings nor kernels of the user's own.
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where it writes
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    nbclient.execute(notebook, cwd=str(NOTEBOOK.parent), timeout=600)
    check_results(notebook)
