"""Vocabularies that build_vocab.py learns."""

import json
import pathlib
import subprocess
import sys

import build_vocab

TEXT = "Low lower lowest, new newer newest! Él niño: 我们.\n" * 20


def learn(folder: pathlib.Path, text: str | bytes | None, **chosen) -> None:
    """Learns made/vocab.txt, or another --output_file, from a text."""
    path = folder / "text.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    chosen = {
        "input_file": [str(path)],
        "output_file": str(folder / "made" / "vocab.txt"),
        "vocab_size": 130,
        "num_unused": 2,
        **chosen,
    }
    build_vocab.main(build_vocab.Options(**chosen))


def check_same_bytes(folder: pathlib.Path, name: str, size: int) -> None:
    """Every process writes the same bytes.

    Ties are many here; hash seeds and threads would break them differently.
    """
    text = "".join(f"w{a}{b}{c} " for a in "abcd" for b in "efgh" for c in "ijkl")
    (folder / "text.txt").write_text(f"{text}\n" * 5)
    made = []
    for seed, threads in (("1", "1"), ("2", "2"), ("3", "2")):
        output = folder / seed / name
        subprocess.run(
            [
                *[sys.executable, build_vocab.__file__, f"--vocab_size={size}"],
                *[f"--input_file={folder}/text.txt", "--num_unused=0"],
                f"--output_file={output}",
            ],
            check=True,
            env={"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
        )
        made.append([path.read_bytes() for path in sorted(output.parent.iterdir())])
    assert made[0] == made[1] == made[2]
    vocabulary = (folder / "1" / name).read_bytes()
    is_json = name.endswith(".json")
    count = len(json.loads(vocabulary)) if is_json else vocabulary.count(b"\n")
    assert count == size
