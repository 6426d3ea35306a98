"""A stand-in for the Hugging Face Hub on 127.0.0.1: the endpoints an upload uses, answering as the Hub does (its client's source)."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_tests"


class Hub(ThreadingHTTPServer):
    """What arrived."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.visibility: dict[str, str] = {}  # repository → what was asked for when it was made
        self.files: dict[str, dict[str, bytes]] = {}  # repository → path → content
        self.blobs: dict[str, bytes] = {}  # SHA-256 → content, from LFS
        self.calls: list[str] = []
        self.broken = False  # takes no blobs


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        repo = self.path.removeprefix("/api/models/")
        if repo in self.server.visibility:
            self._answer({"id": repo, "private": self.server.visibility[repo] == "private", "tags": [], "siblings": []})
        else:
            self._answer({"error": "Repository not found"}, 404)

    def do_PUT(self) -> None:
        content = self._body()
        if self.server.broken:
            self._answer({"error": "not today"}, 400)
            return
        digest = hashlib.sha256(content).hexdigest()
        assert self.path == f"/blob/{digest}"
        self.server.blobs[digest] = content
        self._answer({})

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        self.server.calls.append(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [
                {
                    "path": file["path"],
                    "shouldIgnore": False,
                    "uploadMode": "lfs" if file["path"].endswith((".safetensors", ".png")) else "regular",
                }
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": one["oid"],
                    "size": one["size"],
                    "actions": {"upload": {"href": f"{self.server.endpoint}/blob/{one['oid']}"}},
                }
                for one in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in path:
            self._commit(path.removeprefix("/api/models/").partition("/commit/")[0], body)
        else:
            self._answer({"error": f"no such endpoint: {path}"}, 404)

    def _create(self, asked: dict[str, Any]) -> None:
        owner = asked["organization"] or "somebody"
        repo = f"{owner}/{asked['name']}"
        if owner == "stranger":
            self._answer({"error": "You don't have the rights to create a model under this namespace"}, 403)
            return
        known = repo in self.server.visibility
        self.server.visibility.setdefault(repo, asked.get("visibility", "public"))
        self._answer({"url": f"{self.server.endpoint}/{repo}"}, 409 if known else 200)

    def _commit(self, repo: str, body: bytes) -> None:
        arrived = self.server.files.setdefault(repo, {})
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                arrived[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                arrived[value["path"]] = self.server.blobs[value["oid"]]
        self._answer({"commitUrl": f"{self.server.endpoint}/{repo}/commit/1", "commitOid": "1" * 40})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the terminal."""


@contextmanager
def running() -> Iterator[Hub]:
    """A hub that answers while open."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
