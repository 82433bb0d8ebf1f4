"""Declares the flags of a server of models."""

import dataclasses
import re

import options
from errors import UserError

_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class ServingOptions(options.Group):
    """Serving. A page and TensorFlow Serving's JSON API instead of answers to a file."""

    serve: int | None = options.field(
        None,
        help="Serve a page and TensorFlow Serving's JSON API on this port instead.",
        at_least=0,
        below=2**16,
    )
    host: str = options.field(
        "127.0.0.1",
        help="With --serve, the address to listen on.",
        only_for={"serve": options.GIVEN},
    )
    model_name: str = options.field(
        "default",
        help="With --serve, the model's name, as in POST /v1/models/NAME:predict.",
        only_for={"serve": options.GIVEN},
    )
    more_models: list[str] = options.field(
        [],
        help="Further models to serve in this process, as NAME=FOLDER.",
        only_for={"serve": options.GIVEN},
    )
    queue_size: int = options.field(
        256,
        help="Requests to each model that may wait for their turn; more are answered 429.",
        at_least=1,
        at_most=1 << 16,
        only_for={"serve": options.GIVEN},
    )
    timeout_seconds: float = options.field(
        60.0,
        help="Answer 503 to a request that the model has not answered after this time.",
        above=0,
        at_most=86_400,
        only_for={"serve": options.GIVEN},
    )
    json_log: bool = options.field(
        False,
        help="Write the server's log as JSON, an object per line.",
        only_for={"serve": options.GIVEN},
    )

    def __post_init__(self):
        super().__post_init__()
        _check_name(self.model_name, f"--model_name={self.model_name}")
        names = {self.model_name}
        for item in self.more_models:
            name, separator, folder = item.partition("=")
            if not separator or not folder:
                raise UserError(f"--more_models={item}: must be NAME=FOLDER")
            _check_name(name, f"--more_models={item}")
            if name in names:
                raise UserError(
                    f"--more_models={item}: another model is called {name}; give each its "
                    "own name (that of --model_dir is --model_name)"
                )
            names.add(name)

    def folders(self, model_dir: str) -> dict[str, str]:
        """The folders of all models by name; that of model_dir comes first."""
        more = dict(item.split("=", 1) for item in self.more_models)
        return {self.model_name: model_dir, **more}


def _check_name(name, where):
    if not _NAME.fullmatch(name):
        raise UserError(f"{where}: a name may contain only letters, digits, and -._")
