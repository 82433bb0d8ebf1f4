"""What the body of a request asks of a model: its checked rows, within limits.

An instance is an object with the model's parts, or the part itself if only one is required;
inputs are the same by columns. A string may also be {"b64": "..."}, its UTF-8 in Base64.
"""

import asyncio
import base64

from starlette.exceptions import HTTPException
from starlette.requests import Request

from errors import UserError
from files import json_files
from serving.predictor import Served

MAX_BYTES = 4 << 20  # per request
MAX_INSTANCES = 1024  # per request
MAX_CHARACTERS = 100_000  # per text
MAX_TEXTS = 10_000  # per list
BODY_SECONDS = 30  # for a body to arrive


async def read(request: Request) -> bytes:
    """The body, at most MAX_BYTES long."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise HTTPException(
                        413,
                        f"a request may have at most {MAX_BYTES:,} bytes; send several",
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"no complete request within {BODY_SECONDS} seconds"
        ) from None
    return bytes(body)


def content_of(body: bytes) -> object:
    """The JSON of a body."""
    try:
        return json_files.parse(body, object_hook=_decode)
    except ValueError as error:
        raise HTTPException(400, f"not JSON: {error}") from None


def rows_of(content: object, predictor: Served) -> tuple[list[dict], bool]:
    """The requests to the model in one to the server, and whether they came by columns."""
    expected = f'{{"instances": [...]}}, each {predictor.describe_request()}'
    by_columns = isinstance(content, dict) and "inputs" in content
    if by_columns:
        if "instances" in content:
            raise HTTPException(
                400,
                "the request has inputs and instances; pass the rows of one request as "
                "instances or their columns as inputs, not both",
            )
        content["instances"] = _by_rows(content.pop("inputs"), predictor)
    if not isinstance(content, dict) or not isinstance(content.get("instances"), list):
        raise HTTPException(400, f"the request is not {expected}")
    if others := sorted(content.keys() - {"instances", "signature_name"}):
        raise HTTPException(
            400, f"{others[0][:40]!a} is unknown; the request must be {expected}"
        )
    if content.get("signature_name", "serving_default") != "serving_default":
        raise HTTPException(400, "signature_name: must be serving_default")
    instances = content["instances"]
    if len(instances) > MAX_INSTANCES:
        raise HTTPException(
            413,
            f"{len(instances):,} instances; a request may have at most "
            f"{MAX_INSTANCES:,}",
        )
    if len(predictor.required) == 1:
        (part,) = predictor.required
        instances = [x if isinstance(x, dict) else {part: x} for x in instances]
    for number, instance in enumerate(instances):
        _check(instance, f"instances[{number}]", predictor)
    return instances, by_columns


def _decode(part: dict):
    """An object of a request; the string that it stands for if it is {"b64": "..."}.

    Source: tensorflow/serving tensorflow_serving/g3doc/api_rest.md, Encoding binary values.
    """
    encoded = part.get("b64")
    if len(part) != 1 or not isinstance(encoded, str):
        return part
    try:
        padding = "=" * (-len(encoded) % 4)
        return base64.b64decode(encoded + padding, validate=True).decode("utf-8")
    except ValueError as error:
        raise HTTPException(
            400, f"b64: {encoded[:40]!a} is not UTF-8 text in Base64: {error}"
        ) from None


def _by_rows(columns, predictor):
    """The instances in {"inputs": ...}."""
    if not isinstance(columns, dict) and len(predictor.required) == 1:
        (part,) = predictor.required
        columns = {part: columns}
    is_valid = isinstance(columns, dict) and columns
    if not is_valid or not all(isinstance(x, list) for x in columns.values()):
        expected = f"an object of lists by name: {', '.join(predictor.parts)}"
        if len(predictor.required) == 1:
            kind = predictor.parts[predictor.required[0]]
            each = {"text": "strings", "list": "lists of strings"}[kind]
            expected += f", or only its list of {each}"
        raise HTTPException(400, f"inputs: must be {expected}")
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{k[:40]!a} {len(v)}" for k, v in columns.items())
        raise HTTPException(400, f"inputs: the lists differ in length: {sizes}")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def columns_of(answers: list[dict], names: list[str]) -> object:
    """{"outputs": ...}: without its name if there is only one, as in TensorFlow Serving."""
    columns = {name: [answer[name] for answer in answers] for name in names}
    return columns if len(columns) != 1 else columns.popitem()[1]


def _check(instance, where, predictor):
    try:
        predictor.check(instance, where)
    except UserError as error:
        raise HTTPException(400, str(error)) from None
    for name, part in instance.items():
        texts = part if isinstance(part, list) else [part]
        if len(texts) > MAX_TEXTS:
            raise HTTPException(
                413,
                f"{where}: {name} has {len(texts):,} strings; at most {MAX_TEXTS:,} are "
                "allowed",
            )
        if (longest := max(map(len, texts), default=0)) > MAX_CHARACTERS:
            raise HTTPException(
                413,
                f"{where}: {name} has {longest:,} characters; at most {MAX_CHARACTERS:,} "
                "are allowed",
            )
