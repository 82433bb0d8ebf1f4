"""A pre-training run notes how its text became ids, and holds every use of it to that."""

import json
import pathlib

import pytest

import convert_checkpoint
import fill_mask
import run_pretraining
from training.run import distribution
from training.storage.folder import TEXT
from errors import UserError
from tests import jobs
from tests.pretraining import flags
from tests.records import VOCAB_FILE, make_records
from text.tokenizers.vocabulary import Vocabulary

ONE_UPDATE = {"num_train_steps": 1, "num_warmup_steps": 1}


@pytest.fixture
def vocab_file(tmp_path):
    """A vocabulary with a row that training never reaches."""
    path = tmp_path / "vocab.txt"
    tokens = pathlib.Path(VOCAB_FILE).read_text().replace("\ntwenty\n", "\n[unused0]\n")
    path.write_text(tokens)
    assert "[unused0]" in tokens
    return str(path)


@pytest.fixture
def trained(tmp_path, vocab_file, untraced):
    """The flags of a finished run on described records."""
    records = make_records(tmp_path, vocab_file=vocab_file, strip_accents=False)
    given = flags(tmp_path, input_file=[records], **ONE_UPDATE)
    jobs.run(run_pretraining, given)
    return given


def fill(given, vocab_file, **changes):
    own = {"init_checkpoint": given["output_dir"], "vocab_file": vocab_file}
    own |= {"text": "the [MASK]", "strip_accents": False}
    fill_mask.main(fill_mask.Options(**own | changes))


@pytest.mark.slow
def test_every_use_is_held_to_the_text_of_the_records(
    trained, vocab_file, tmp_path, capsys, monkeypatch
):
    output = pathlib.Path(trained["output_dir"])
    assert json.loads((output / TEXT).read_text()) == {
        "vocab_sha256": Vocabulary.load(vocab_file).digest,
        "do_lower_case": True,
        "strip_accents": False,
        "split_cjk": True,
    }
    fill(trained, vocab_file)
    assert "the [MASK]" not in capsys.readouterr().err
    # As where the vocabulary of the records was not at hand; its checksum is known.
    (output / "vocab.txt").unlink()
    # As many tokens in another order.
    other = str(tmp_path / "other.txt")
    tokens = pathlib.Path(vocab_file).read_text().splitlines()
    pathlib.Path(other).write_text("\n".join(reversed(tokens)) + "\n")
    with pytest.raises(UserError, match="text.json: .* another vocabulary; pass the"):
        fill(trained, other)
    with pytest.raises(
        UserError, match="another --strip_acc.*; pass --strip_accents=f"
    ):
        fill(trained, vocab_file, strip_accents=True)
    export = {"do_train": False, "do_export": True, "input_file": []}
    with monkeypatch.context() as patched:
        patched.setattr(distribution, "make", lambda *_, **__: pytest.fail("devices"))
        with pytest.raises(UserError, match="text.json: .* another vocabulary"):
            jobs.run(run_pretraining, trained | export | {"vocab_file": other})
    with pytest.raises(UserError, match="pass --strip_accents=false"):
        contradiction = {"vocab_file": vocab_file, "strip_accents": True}
        jobs.run(run_pretraining, trained | export | contradiction)
    assert not (output / "export").exists()
    convert = {"input": [str(output)], "output_dir": str(tmp_path / "converted")}
    convert |= {"layout": "hugging_face", "vocab_file": vocab_file}
    convert |= {"strip_accents": True}
    with pytest.raises(UserError, match="pass --strip_accents=false"):
        convert_checkpoint.main(convert_checkpoint.Options(**convert))


@pytest.mark.slow
def test_a_vocabulary_is_checked_and_copied(trained, vocab_file, tmp_path):
    given = trained | {"output_dir": str(tmp_path / "again"), "vocab_file": vocab_file}
    with pytest.raises(
        UserError, match="made with --strip_accents=false, not true; pass"
    ):
        jobs.run(run_pretraining, given | {"strip_accents": True})
    assert not (tmp_path / "again").exists()
    jobs.run(run_pretraining, given)
    copied = (tmp_path / "again" / "vocab.txt").read_bytes()
    assert copied == pathlib.Path(vocab_file).read_bytes()
    # Rows that training never reached may have new tokens; others may not.
    renamed = tmp_path / "renamed.txt"
    renamed.write_bytes(copied.replace(b"[unused0]", b"newword"))
    fill(given, str(renamed))
    other = tmp_path / "other.txt"
    other.write_bytes(copied.replace(b"\nthe\n", b"\nzzz\n"))
    with pytest.raises(
        UserError, match="made with a different vocabulary than .*other"
    ):
        fresh = {"vocab_file": str(other), "output_dir": str(tmp_path / "fresh")}
        jobs.run(run_pretraining, given | {"strip_accents": False} | fresh)
    with pytest.raises(UserError, match="other.txt: token [0-9]+ is 'zzz', but 'the'"):
        fill(given, str(other))


@pytest.mark.slow
def test_a_resumed_run_keeps_its_vocabulary(vocab_file, tmp_path, untraced):
    """Also where the records are not described, as the release's."""
    given = flags(tmp_path, vocab_file=vocab_file, **ONE_UPDATE)
    jobs.run(run_pretraining, given)
    output = pathlib.Path(given["output_dir"])
    noted = [(output / name).read_bytes() for name in ("text.json", "vocab.txt")]
    other = tmp_path / "other.txt"
    other.write_bytes(noted[1].replace(b"\nthe\n", b"\nzzz\n"))
    with pytest.raises(UserError, match="other.txt: token [0-9]+ is 'zzz', but 'the'"):
        jobs.run(run_pretraining, given | {"vocab_file": str(other)})
    with pytest.raises(UserError, match="pass --do_lower_case=true"):
        jobs.run(run_pretraining, given | {"do_lower_case": False})
    assert noted == [(output / n).read_bytes() for n in ("text.json", "vocab.txt")]
