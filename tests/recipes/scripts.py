"""What recipes are given: small files in a folder, and the flags of a run on them."""

from tests import given
from tests.given import RELEASED


def of_augmentation(folder):
    (folder / "text.txt").write_text("the first\nthe second\n")
    return {**RELEASED, "input_file": str(folder / "text.txt"), "num_copies": 2}


def of_documentation(folder):
    sentence = "Returns number {} of the words that are in this fine module of {}."
    for number in range(8):
        for package in ("one", "two"):
            some = (sentence.format(10 * number + i, package) for i in range(9))
            path = folder / package / f"module{number}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'"""{" ".join(some)}"""\n')
    return {"held_out_every": 2, "package_sentences": 2, "package_dev_sentences": 2}


def of_ablations(folder):
    (folder / "text.txt").write_text("One is here. Two are not.\n\nAnother one.\n" * 9)
    task = f"SST-2:{given.of_classifier(folder)['data_dir']}"
    return {"table": ["5"], "input_file": [str(folder / "text.txt")], "tasks": [task]}


def of_suite(folder):
    task = f"SST-2:{given.of_classifier(folder)['data_dir']}"
    return {"init_checkpoint": [given.RELEASED["init_checkpoint"]], "tasks": [task]}


_OUT = {"output_file": "out"}
SCRIPTS = {
    "recipes.augment": (of_augmentation, _OUT),
    "recipes.collect_documentation": (given.of_nothing, _OUT | {"max_modules": 20}),
    "recipes.demo": (given.of_nothing, {"short": True, "output_dir": "out"}),
    "recipes.ablations": (of_ablations, {"output_dir": "out"}),
    "recipes.suite": (of_suite, {"output_dir": "out"}),
}
ONLY_READ = dict.fromkeys(
    ["recipes.demo", "recipes.ablations", "recipes.suite"], "takes minutes"
)
READ_NO_TEXT = {"recipes.collect_documentation": "reads installed packages"}
