"""A small stand-in for Hugging Face's hub: the calls that fetch and upload a model."""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
import time
from collections.abc import Iterator
from urllib.parse import unquote

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_RESOLVE = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)")
_MODEL = re.compile(r"/api/models/([\w.-]+/[\w.-]+)(?:/revision/(.+))?")


class Hub:
    """The models of the stand-in.

    Attributes:
        models: a folder for each name, "organization/name".
        gated: names of models that ask for conditions to be accepted.
        damaged: names of files that are sent with a wrong byte.
        dribbles: whether answers never end: a byte comes now and then.
        read_only: whether nothing may be uploaded.
        has_checksums: whether it says sizes and checksums; some mirrors do not.
        uploaded: the content of each file by the name of its model and its own.
        requests: the method and path of each request.
        url: of the server.
    """

    def __init__(self):
        self.models: dict[str, pathlib.Path] = {}
        self.gated: set[str] = set()
        self.damaged: set[str] = set()
        self.dribbles = False
        self.read_only = False
        self.has_checksums = True
        self.requests: list[str] = []
        self.uploaded: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.url = ""


def is_large(path: pathlib.Path) -> bool:
    return path.suffix == ".safetensors"


def _sibling(path: pathlib.Path, folder: pathlib.Path) -> dict:
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {
        "rfilename": str(path.relative_to(folder)),
        "size": len(content),
        "blobId": blob,
    }
    if is_large(path):
        entry["lfs"] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
            "pointerSize": 134,
        }
    return entry


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def _answer(self, status=200, content: object = b"", **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers["Content-Type"] = "application/json"
        self.send_response(status)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in ({"Content-Length": len(content)} | headers).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status, code):
        self._answer(status, {"error": code}, X_Error_Code=code, X_Error_Message=code)

    def _dribble(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        with contextlib.suppress(OSError):  # the client has left
            while self.hub.dribbles:
                self.wfile.write(b"a")
                time.sleep(0.05)
        self.close_connection = True

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(f"{self.command} {path}")
        if self.hub.dribbles:
            return self._dribble()
        if found := _RESOLVE.fullmatch(path):
            return self._file(*found.groups())
        if found := _MODEL.fullmatch(path):
            return self._model(*found.groups())
        self._refuse(404, "RepoNotFound")

    do_HEAD = do_GET

    def _is_there(self, name, revision) -> bool:
        if name not in self.hub.models:
            self._refuse(401, "RepoNotFound")
        elif name in self.hub.gated:
            self._refuse(403, "GatedRepo")
        elif revision not in (None, "main", _COMMIT):
            self._refuse(404, "RevisionNotFound")
        else:
            return True
        return False

    def _model(self, name, revision):
        if self._is_there(name, revision):
            folder = self.hub.models[name]
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            files = [_sibling(path, folder) for path in files]
            if not self.hub.has_checksums:
                files = [{"rfilename": file["rfilename"]} for file in files]
            self._answer(
                content={"id": name, "modelId": name, "sha": _COMMIT, "siblings": files}
            )

    def _file(self, name, revision, file):
        if not self._is_there(name, revision):
            return
        path = self.hub.models[name] / file
        if not path.exists():
            return self._refuse(404, "EntryNotFound")
        entry, content = _sibling(path, self.hub.models[name]), path.read_bytes()
        tag = entry["lfs"]["sha256"] if "lfs" in entry else entry["blobId"]
        if file in self.hub.damaged:
            content = bytes([content[0] ^ 1]) + content[1:]
        self._answer(content=content, ETag=f'"{tag}"', X_Repo_Commit=_COMMIT)

    def do_POST(self):
        self.hub.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.hub.read_only:
            return self._refuse(403, "Forbidden")
        if self.path == "/api/repos/create":
            said = json.loads(body)
            name = f"{said.get('organization') or 'me'}/{said['name']}"
            self.hub.uploaded.setdefault(name, {})
            return self._answer(content={"url": f"{self.hub.url}/{name}"})
        if self.path == "/api/validate-yaml":  # of a card
            return self._answer(content={"errors": [], "warnings": []})
        if self.path.endswith("/objects/batch"):
            return self._batch(json.loads(body))
        name = re.match(r"/api/models/([\w.-]+/[\w.-]+)/", self.path)[1]
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs"
                    if is_large(pathlib.Path(file["path"]))
                    else "regular",
                    "shouldIgnore": False,
                }
                for file in files
            ]
            return self._answer(content={"files": modes})
        self._commit(name, body)

    def _batch(self, said):
        self._answer(
            content={
                "transfer": "basic",
                "objects": [
                    {
                        "oid": item["oid"],
                        "size": item["size"],
                        "actions": {
                            "upload": {"href": f"{self.hub.url}/objects/{item['oid']}"}
                        },
                    }
                    for item in said["objects"]
                ],
            }
        )

    def do_PUT(self):
        self.hub.requests.append(f"{self.command} {self.path}")
        size = int(self.headers.get("Content-Length", 0))
        self.hub.objects[self.path.rpartition("/")[2]] = self.rfile.read(size)
        self._answer()

    def _commit(self, name, body):
        files = self.hub.uploaded[name]
        for line in body.splitlines():
            said = json.loads(line)
            if said["key"] == "file":
                files[said["value"]["path"]] = base64.b64decode(
                    said["value"]["content"]
                )
            elif said["key"] == "lfsFile":
                files[said["value"]["path"]] = self.hub.objects[said["value"]["oid"]]
        url = f"{self.hub.url}/{name}/commit/{_COMMIT}"
        self._answer(content={"commitOid": _COMMIT, "commitUrl": url, "success": True})


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        hub.url = f"http://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield hub
        server.shutdown()
