"""serving/server.py: the JSON endpoint as its clients meet it, the rude ones too."""

import base64
import json
import re
import signal
import socket
import sys

import pytest
import uvicorn

import predict
from errors import UserError
from serving import application, request_bodies, server
from serving.options import ServingOptions
from tests import exports
from tests.serving.clients import PREDICT, Faulty, command, send, serving


def test_instances_become_predictions(port):
    positive = {
        "predicted": "positive",
        "probabilities": {"negative": 0.1, "positive": 0.9},
    }
    body = {"signature_name": "serving_default", "instances": [{"text_a": "good 🐈"}]}
    assert send(port("label"), body)[:2] == (200, {"predictions": [positive]})
    # A single part goes without its name, as in TensorFlow Serving.
    status, content, _ = send(port("label"), {"instances": ["good", "bad"]})
    assert [p["predicted"] for p in content["predictions"]] == ["positive", "negative"]
    status, content, _ = send(port("tags"), {"instances": [["Ada"], ["a", "b"], []]})
    assert [p["tags"] for p in content["predictions"]] == [["B-PER"], ["O", "O"], []]
    assert send(port("label"), {"instances": []})[:2] == (200, {"predictions": []})


def test_status_is_that_of_tensorflow_serving(port):
    status, content, _ = send(port("label"), None, "/v1/models/toy", "GET")
    good = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": good}
    assert (status, content) == (200, {"model_version_status": [version]})


def test_inputs_by_columns_become_outputs_by_columns(port):
    body = {"inputs": {"context": ["c", ""], "endings": [["a", "bbb"], ["aa"]]}}
    expected = {"predicted": [1, 0], "probabilities": [[0.25, 0.75], [1.0]]}
    assert send(port("choice"), body)[:2] == (200, {"outputs": expected})
    # A single part and a single output go without their names, as in TensorFlow Serving.
    assert send(port("number"), {"inputs": ["four"]})[:2] == (200, {"outputs": [4.0]})
    assert send(port("number"), {"inputs": []})[:2] == (200, {"outputs": []})
    # The columns are those of any answer, also of none.
    empty = {"inputs": {"context": [], "endings": []}}
    expected = {"predicted": [], "probabilities": []}
    assert send(port("choice"), empty)[:2] == (200, {"outputs": expected})


def test_strings_may_come_in_base64_as_in_tensorflow_serving(port):
    word = {"b64": base64.b64encode("good 🐈".encode()).decode()}
    for body in (
        {"instances": [word]},
        {"instances": [{"text_a": word}]},
        {"inputs": [word]},
        {"inputs": {"text_a": [word]}},
        {"inputs": [{"b64": word["b64"].rstrip("=")}]},
    ):
        status, content, _ = send(port("label"), body)
        assert status == 200
        assert "positive" in json.dumps(content.popitem()[1])
    (tags,) = send(port("tags"), {"instances": [[{"b64": "QWRh"}]]})[1]["predictions"]
    assert tags["entities"][0]["text"] == "Ada"
    for bad in ("a", "/w==", "é"):  # /w== is a byte that UTF-8 does not have
        status, content, _ = send(port("label"), {"instances": [{"b64": bad}]})
        assert status == 400
        assert "is not UTF-8 text in Base64: " in content["error"]
    other = {"instances": [{"b64": "QWRh", "text_a": "a"}]}
    assert "has 'b64'" in send(port("label"), other)[1]["error"]


def test_the_version_is_the_model(port):
    path = "/v1/models/toy/versions/1"
    body = {"instances": ["good"]}
    assert (
        send(port("label"), body, f"{path}:predict")[1] == send(port("label"), body)[1]
    )
    assert send(port("label"), None, path, "GET")[0] == 200
    assert send(port("label"), body, "/v1/models/toy/versions/2:predict")[0] == 404


def test_metadata_are_those_of_tensorflow_serving(port):
    path = "/v1/models/toy/metadata"
    status, content, _ = send(port("choice"), None, path, "GET")
    assert status == 200
    assert content["model_spec"]["name"] == "toy"
    signature = content["metadata"]["signature_def"]["signature_def"]["serving_default"]
    any_size = {"size": "-1", "name": ""}
    endings = signature["inputs"]["endings"]
    assert endings["dtype"] == "DT_STRING"
    assert endings["tensor_shape"] == {"dim": [any_size] * 2, "unknown_rank": False}
    assert signature["outputs"]["predicted"]["dtype"] == "DT_INT32"
    assert signature["outputs"]["probabilities"]["dtype"] == "DT_FLOAT"
    # What :predict answers is not always a row of those.
    assert content["answers"] == {
        "form": "choice",
        "names": ["predicted", "probabilities"],
    }


def test_requests_are_logged_without_their_texts(port, capfd):
    send(port("label"), {"instances": ["secret"]})
    send(port("label"), None, "/v1/%0amodels?secret", "GET")
    lines = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"POST /v1/models/toy:predict 200 \d+ ms", lines[0])
    assert re.fullmatch(r"GET /v1/%0amodels 404 \d+ ms", lines[1])


BAD_BODIES = [
    (b"", "not JSON: "),
    (b"\xff", "not JSON: "),
    (b'{"instances": [', "not JSON: "),
    (b"[" * 100_000, "not JSON: "),
    (b"1" * 10_000, "not JSON: "),
    (
        [],
        'the request is not {"instances": [...]}, each an object with context (a string)',
    ),
    ({}, "the request is not"),
    ({"instances": {}}, "the request is not"),
    ({"inputs": ["a"]}, "inputs: must be an object of lists by name: context, endings"),
    ({"inputs": {"context": "a", "endings": []}}, "inputs: must be an object of lists"),
    ({"inputs": {"context": ["a"], "endings": []}}, "inputs: the lists differ in"),
    ({"inputs": {"context": ["a"]}}, "instances[0]: has no endings"),
    (
        {"inputs": {"context": []}, "instances": []},
        "the request has inputs and instances; pass the rows",
    ),
    ({"instances": [], "path": "/etc/passwd"}, "'path' is unknown"),
    ({"instances": [], "signature_name": "tensors"}, "signature_name: must be"),
    ({"instances": [{"context": "a"}]}, "instances[0]: has no endings; expected an"),
    ({"instances": ["a"]}, "instances[0]: is a string"),
    (
        {
            "instances": [
                {"context": "a", "endings": ["b"]},
                {"context": 1, "endings": []},
            ]
        },
        "instances[1]: context is a number, not a string",
    ),
    ({"instances": [{"context": "\ud800", "endings": ["a"]}]}, "surrogate pair"),
    (b'{"instances": [{"context": NaN, "endings": []}]}', "context is a number"),
    (
        {"instances": [{"context": "a", "endings": ["b", " \n"]}]},
        "instances[0]: endings has an empty choice, number 2; expected an object",
    ),
]


@pytest.mark.parametrize(("body", "message"), BAD_BODIES)
def test_bad_requests(port, body, message):
    status, content, _ = send(port("choice"), body)
    assert status == 400
    assert list(content) == ["error"]
    assert message in content["error"]


@pytest.mark.parametrize(
    ("form", "allowed"), [("label", "strings"), ("tags", "lists of strings")]
)
def test_what_inputs_of_one_part_may_be_is_said(port, form, allowed):
    status, content, _ = send(port(form), {"inputs": "a"})
    assert status == 400
    assert f", or only its list of {allowed}" in content["error"]


TOO_LARGE = [
    (
        b" " * (request_bodies.MAX_BYTES + 1),
        "a request may have at most 4,194,304 bytes",
    ),
    # The client hears it, though it has still to send the most part.
    (
        b" " * (3 * request_bodies.MAX_BYTES),
        "a request may have at most 4,194,304 bytes",
    ),
    ({"instances": [["a"]] * 1025}, "1,025 instances; a request may have at most"),
    ({"instances": [["a", "b" * 100_001]]}, "words has 100,001 characters; at most"),
    ({"instances": [[""] * 10_001]}, "instances[0]: words has 10,001 strings; at"),
]


@pytest.mark.parametrize(("body", "message"), TOO_LARGE)
def test_what_is_too_large(port, body, message):
    status, content, _ = send(port("tags"), body)
    assert status == 413
    assert message in content["error"]


def test_largest_that_is_not_too_large(port):
    instances = [["a"] * 10_000, ["b" * 100_000], *[["c"]] * 1022]
    status, content, _ = send(port("tags"), {"instances": instances})
    assert status == 200
    assert [len(p["tags"]) for p in content["predictions"]] == [10_000, 1] + [1] * 1022


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/page.html", 404),
        ("GET", PREDICT, 405),
        ("POST", "/", 405),
        ("DELETE", "/v1/models/toy", 405),
    ],
)
def test_other_addresses_and_methods(port, method, path, status):
    found, content, headers = send(port("label"), None, path, method)
    assert found == status
    assert list(content) == ["error"]
    assert ("Allow" in headers) == (status == 405)
    if status == 404:
        paths = (
            "/v1/models/toy/metadata",
            PREDICT,
            "/v1/models/toy/versions/1:predict",
        )
        assert all(path in content["error"].split() for path in paths[2:])
        assert all(f"{path}," in content["error"].split() for path in paths[:2])


BODY = b'{"instances": ["a"]}'
CHUNKED = b"14\r\n" + BODY + b"\r\n0\r\n\r\n"
# The head of a request, its lines apart by "|", and a body. A proxy before us may end it
# elsewhere, and pass on as a body what we answer as the next request.
SMUGGLING = {
    "two lengths": (b"Content-Length: 4|Transfer-Encoding: chunked", CHUNKED),
    "two lengths, other order": (
        b"Transfer-Encoding: chunked|Content-Length: 4",
        CHUNKED,
    ),
    "lengths that differ": (b"Content-Length: 20|Content-Length: 4", BODY),
    "signed length": (b"Content-Length: +20", BODY),
    "name with a space": (b"Transfer-Encoding : chunked", CHUNKED),
    "another coding": (b"Transfer-Encoding: gzip, chunked", CHUNKED),
    "folded coding": (b"Transfer-Encoding:| chunked", CHUNKED),
    "folded length": (b"X: a|\tContent-Length: 4|Content-Length: 20", BODY),
    "bare line feed": (b"X: a\nContent-Length: 20", BODY),
    "bare carriage return": (b"X: a\rContent-Length: 4|Content-Length: 20", BODY),
    "signed chunk": (b"Transfer-Encoding: chunked", b"+" + CHUNKED),
    "chunk with a line feed": (b"Transfer-Encoding: chunked", b"14;a\n" + CHUNKED[2:]),
    "a line after the chunks": (
        b"Transfer-Encoding: chunked",
        CHUNKED.removesuffix(b"\r\n") + b"X: a\r\n\r\n",
    ),
    "a line feed after the chunks": (
        b"Transfer-Encoding: chunked",
        CHUNKED.removesuffix(b"\r\n") + b"\n",
    ),
    "chunks of an old version": (b"Transfer-Encoding: chunked", CHUNKED, b"1.0"),
}
USUAL = {
    "length": (b"Content-Length: 20", BODY),
    "one length twice": (b"Content-Length: 20|Content-Length: 20", BODY),
    "chunks": (b"Transfer-Encoding: chunked", CHUNKED),
}


@pytest.fixture(scope="module")
def statuses():
    """What two requests on one connection are answered, until it is closed."""
    model = Faulty()
    model.go.set()

    def answered(fields, body, version=b"1.1"):
        first = b"POST " + PREDICT.encode() + b" HTTP/" + version + b"|" + fields
        second = b"GET /v1/models/toy HTTP/1.1|Connection: close"
        first, second = (
            (head + b"|Host: localhost||").replace(b"|", b"\r\n")
            for head in (first, second)
        )
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(first + body + second)
            with client.makefile("rb") as answers:
                return re.findall(rb"HTTP/1.1 (\d+)", answers.read())

    with serving(model) as port:
        yield answered


@pytest.mark.parametrize("request_of", SMUGGLING.values(), ids=SMUGGLING)
def test_a_request_whose_end_is_ambiguous_is_refused_with_what_follows(
    statuses, request_of
):
    assert statuses(*request_of) == [b"400"]


@pytest.mark.parametrize("request_of", USUAL.values(), ids=USUAL)
def test_a_request_that_follows_another_is_answered(statuses, request_of):
    assert statuses(*request_of) == [b"200", b"200"]


def test_name_of_somebody_else_that_leads_here(predictor):
    """A page of evil.example, made to lead to this machine, could read the answers."""
    good = (
        "localhost",
        "LocalHost:1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:80",
        "[fe80::1]",
    )
    bad = ("evil.example", "localhost.evil.example", "[::2]:80", "[::1]evil", "::1", "")
    with serving(predictor("label"), hosts=application.names("fe80:0::1%eth0")) as port:
        for host in good:
            assert send(port, None, "/", "GET", {"Host": host})[0] == 200, host
        for host in bad:
            status, content, _ = send(port, None, "/", "GET", {"Host": host})
            assert status == 400, host
            assert list(content) == ["error"]
            assert "localhost" in content["error"]


def test_page_of_somebody_else_that_asks(port):
    """Its browser says whose page it is; curl and the like say nothing."""
    number, body = port("label"), {"instances": ["good"]}
    own = f"127.0.0.1:{number}"
    assert send(number, body, headers={"Origin": f"http://{own}"})[0] == 200
    asked = {"Host": "Model.example", "Origin": "https://model.example"}
    assert send(number, body, headers=asked)[0] == 200
    for origin in (
        "https://evil.example",
        "null",
        "",
        f"http://{own}0",
        "http://[::1]",
    ):
        status, content, _ = send(number, body, headers={"Origin": origin})
        assert status == 403, origin
        assert list(content) == ["error"]


@pytest.mark.parametrize(
    ("host", "hosts"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "::1"}),
        ("localhost", {"localhost", "127.0.0.1", "::1"}),
        ("0.0.0.0", None),
    ],
)
def test_who_can_ask(predictor, monkeypatch, capsys, host, hosts):
    """Beyond this machine any name may lead here; then it says so."""
    seen = []
    monkeypatch.setattr(
        application, "make", lambda models, log, hosts: seen.append(hosts)
    )

    async def serve(self, sockets):
        pass

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    run(predictor("label"), host, 0)
    assert seen == [hosts]
    said = capsys.readouterr().err
    assert said.startswith(f"Serving toy at http://{host}:")
    warned = "Anyone who can reach this machine can query" in said
    assert warned == (hosts is None)


def test_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own(port):
    status, content, headers = send(port("label"), None, "/", "GET")
    page = content.decode()
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert not re.search(r"(?:src|href)=\"(?!data:,)|@import|url\(|//\w+\.", page)
    policy = headers["Content-Security-Policy"]
    (nonce,) = set(re.findall(r"nonce-([\w-]+)", policy))
    assert policy.startswith("default-src 'none'; ")
    assert page.count(f'nonce="{nonce}"') == 2
    other = send(port("label"), None, "/", "GET")[2]["Content-Security-Policy"]
    assert nonce not in other
    assert "innerHTML" not in page


def test_names_of_parts_are_no_markup(predictor):
    class Odd(Faulty):
        parts = {"</script><script>alert(1)</script>": "text"}

    with serving(Odd()) as port:
        page = send(port, None, "/", "GET")[1].decode()
    assert "alert" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("name", ["NONCE", "MODEL_JSON"])
def test_names_that_the_page_has_for_itself(name):
    with serving(Faulty(), name) as port:
        page = send(port, None, "/", "GET")[1].decode()
    (model,) = re.findall(r'id="model">(.*)</script>', page)
    assert json.loads(model)["name"] == name


def run(predictor, host, port):
    flags = ServingOptions(serve=port, host=host)
    server.run(flags, {"toy": ""}, lambda name, folder: predictor)


@pytest.mark.parametrize("name", ["a/b", "a b", "", "ä"])
def test_names_that_no_address_can_have(name):
    with pytest.raises(UserError, match="--model_name"):
        ServingOptions(serve=0, model_name=name)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["b"], "--more_models=b: must be NAME=FOLDER"),
        (["b="], "--more_models=b=: must be NAME=FOLDER"),
        (["b/c=d"], "--more_models=b/c=d: a name may contain only"),
        (["a=folder"], "--more_models=a=folder: another model is called a;"),
        (["b=c", "b=d"], "--more_models=b=d: another model is called b;"),
    ],
)
def test_models_that_cannot_be_told_apart(more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        ServingOptions(serve=0, model_name="a", more_models=more)


def test_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--serve={number}: cannot listen there"):
            run(None, "127.0.0.1", number)


def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "serving.server")
    monkeypatch.delattr("serving.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match="pip install -r requirements/serve.txt"):
        predict.main(predict.Options(model_dir=str(tmp_path), serve=0))


def test_the_command_serves_until_ctrl_c(tmp_path):
    with command(exports.write(tmp_path, "label")) as (process, port, log):
        status, content, _ = send(port, {"instances": ["good"]})
        assert content["predictions"][0]["predicted"] == "positive"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    request, end = log
    assert re.fullmatch(r"POST /v1/models/toy:predict 200 \d+ ms\n", request)
    assert end == "Stopped\n"
