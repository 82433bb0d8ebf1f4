"""Describes the addresses of a server of models as OpenAPI does.

Source: spec.openapis.org/oas/v3.1.0, whose schemas are those of JSON Schema 2020-12.
"""

from collections.abc import Mapping

from serving import request_bodies
from serving.form import TEXT, list_of
from serving.predictor import Served

_ERRORS = {
    "400": "the request is not what the model takes",
    "408": "the body did not arrive in time",
    "413": "the request is too large",
    "429": "too many requests wait for the model",
    "500": "the model failed",
    "503": "the model took too long",
}


def document(models: Mapping[str, Served]) -> dict:
    """The description.

    Args:
        models: by name.
    """
    error = _object({"error": TEXT})
    paths = {
        "/healthz": _get("Whether the process answers", {"type": "object"}),
        "/readyz": _get("Whether every model takes requests", {"type": "object"}),
        "/metrics": {
            "get": _operation(
                "Counts, for Prometheus",
                {"200": _response("counts", TEXT, "text/plain")},
            )
        },
    }
    for name, model in models.items():
        path = f"/v1/models/{name}"
        paths[path] = _get(f"The status of {name}", {"type": "object"})
        paths[f"{path}/metadata"] = _get(f"The tensors of {name}", {"type": "object"})
        paths[f"{path}:predict"] = {"post": _prediction(name, model)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Models", "version": "1"},
        "paths": paths,
        "components": {"schemas": {"Error": error}},
    }


def _get(summary, schema):
    return {"get": _operation(summary, {"200": _response("the answer", schema)})}


def _prediction(name, model):
    answer = _object(model.answer_schemas)
    parts = {part: _part(kind) for part, kind in model.parts.items()}
    instance = _object(parts, model.required)
    if len(model.required) == 1:
        instance = {"anyOf": [instance, parts[model.required[0]]]}
    signature = {"const": "serving_default"}
    instances = {**list_of(instance), "maxItems": request_bodies.MAX_INSTANCES}
    columns = _object({k: list_of(v) for k, v in parts.items()}, model.required)
    if len(model.required) == 1:
        columns = {"anyOf": [columns, list_of(parts[model.required[0]])]}
    outputs = _object({k: list_of(v) for k, v in model.answer_schemas.items()})
    if len(model.answer_schemas) == 1:
        outputs = list_of(*model.answer_schemas.values())
    body = {
        "oneOf": [
            _object({key: value, "signature_name": signature}, [key])
            for key, value in (("instances", instances), ("inputs", columns))
        ]
    }
    answered = {
        "oneOf": [
            _object({"predictions": list_of(answer)}),
            _object({"outputs": outputs}),
        ]
    }
    error = {"$ref": "#/components/schemas/Error"}
    responses = {"200": _response("the answers, in order", answered)}
    responses |= {k: _response(what, error) for k, what in _ERRORS.items()}
    return {
        **_operation(f"{name} {model.purpose}", responses),
        "requestBody": {"required": True, "content": _content(body)},
    }


def _part(kind):
    encoded = _object({"b64": TEXT})
    text = {"anyOf": [{**TEXT, "maxLength": request_bodies.MAX_CHARACTERS}, encoded]}
    if kind == "text":
        return text
    return {**list_of(text), "maxItems": request_bodies.MAX_TEXTS}


def _operation(summary, responses):
    return {"summary": summary, "responses": responses}


def _response(what, schema, media_type="application/json"):
    return {"description": what, "content": _content(schema, media_type)}


def _content(schema, media_type="application/json"):
    return {media_type: {"schema": schema}}


def _object(properties, required=None):
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
