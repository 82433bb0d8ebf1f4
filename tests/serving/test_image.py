"""serving/Dockerfile, whose steps are done in a fresh folder: no image is built here."""

import fnmatch
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tests
from tests import exports
from tests.serving.clients import send

FILE = tests.ROOT / "serving" / "Dockerfile"
IGNORED = FILE.with_name("Dockerfile.dockerignore").read_text().split()


def stages():
    """The instructions of each stage by its name: pairs of a word and the rest."""
    content = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M).replace("\\\n", " ")
    made = {}
    for line in filter(None, content.splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            made[rest.split()[-1]] = instructions = []
        elif made:
            instructions.append((word, rest))
    return made


def copy(source, target):
    def ignore(folder, names):
        patterns = [pattern.removeprefix("**/") for pattern in IGNORED]
        return {n for n in names if any(fnmatch.fnmatch(n, p) for p in patterns)}

    if source.is_dir():
        shutil.copytree(source, target, ignore=ignore)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target if target.suffix else target / source.name)


def closure(names):
    """Distributions and those that they need, as far as they are installed here."""
    found, left = {}, list(names)
    while left:
        name = canonicalize_name(left.pop())
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in found:
            found[name] = distribution
            needed = map(Requirement, distribution.requires or ())
            left += [
                r.name
                for r in needed
                if not r.marker or r.marker.evaluate({"extra": ""})
            ]
    return found.values()


def link_packages(names, folder):
    """Makes a folder with nothing but these packages."""
    folder.mkdir()
    for distribution in closure(names):
        tops = {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}
        for top in tops:
            source = pathlib.Path(distribution.locate_file(top))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)


def installed_by(run, folder):
    """The distributions that pip is told to install."""
    names = []
    for command in run.split("&&"):
        words = shlex.split(command)
        assert words[:2] == ["pip", "install"]
        for before, word in zip(words[1:], words[2:], strict=False):
            if before in ("-r", "-c"):
                assert (folder / word).exists(), word
            if before == "-r":
                lines = (folder / word).read_text().splitlines()
                names += [line for line in lines if not line.startswith("#")]
            elif before != "-c" and not word.startswith("-"):
                names.append(word.replace("${TENSORFLOW}", "tensorflow"))
    return [Requirement(name).name for name in names]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """What the steps made: the folder, the packages, the other instructions."""
    root = tmp_path_factory.mktemp("image")
    folder, packages, others = root / "bert", root / "packages", {}
    folder.mkdir()
    *_, serving = stages().values()
    for word, rest in serving:
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(tests.ROOT / source, folder / target)
        elif word == "RUN" and "pip" in rest:
            link_packages(installed_by(rest, folder), packages)
        else:
            others[word] = rest
    return folder, packages, others


def test_the_image_serves_an_export_and_is_healthy(image, tmp_path):
    folder, packages, others = image
    export = exports.write(tmp_path / "export", "label")
    python, *words = json.loads(others["ENTRYPOINT"])
    assert (python, others["USER"]) == ("python", "user")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
    with subprocess.Popen(
        # Without the packages of this environment; the last of a flag counts.
        [sys.executable, "-S", *words, f"--model_dir={export}", "--serve=0"],
        **{"cwd": folder, "env": environment, "text": True, "stderr": subprocess.PIPE},
    ) as process:
        try:
            first = process.stderr.readline()
            assert "Serving default at http://0.0.0.0:" in first
            port = re.search(r":(\d+)/", first)[1]
            _, _, probe = others["HEALTHCHECK"].partition("CMD ")
            python, *words = json.loads(probe)
            assert f":{others['EXPOSE']}/healthz" in words[-1]
            words[-1] = words[-1].replace(others["EXPOSE"], port)
            subprocess.run([sys.executable, "-S", *words], check=True)
            path = "/v1/models/default:predict"
            content = send(int(port), {"instances": ["good"]}, path)[1]
            assert content["predictions"][0]["predicted"] == "positive"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            done = subprocess.run([sys.executable, "-S", *words], capture_output=True)
            assert done.returncode
        finally:
            process.kill()


def test_the_image_has_no_tests_and_nothing_that_trains(image):
    folder, packages, _ = image
    names = {path.name for path in folder.iterdir()}
    assert {"predict.py", "serving", "requirements.txt"} <= names
    assert not names & {"tests", "benchmarks", "recipes", "docs", "run_classifier.py"}
    installed = {path.name for path in packages.iterdir()}
    assert "tensorflow" in installed
    assert not installed & {"matplotlib", "sklearn", "pytest", "jax"}
