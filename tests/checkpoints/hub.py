"""A stand-in for the Hugging Face Hub on 127.0.0.1: the endpoints that an upload and a download use.

It answers as the Hub does, by its client's source: small files from /resolve/, large ones (LFS) by a redirect to a
content server, with their commit and digest in the headers.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

TOKEN = "hf_tests"
# What .gitattributes of a repository sends to LFS, beyond files of more than 10 MB.
LARGE = (".safetensors", ".bin", ".png", ".model", ".weight")
COMMIT = "5" * 40


class Hub(ThreadingHTTPServer):
    """What it holds, what arrived, and what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.visibility: dict[str, str] = {}  # repository → what was asked for when it was made
        self.files: dict[str, dict[str, bytes]] = {}  # repository → path → content
        self.blobs: dict[str, bytes] = {}  # SHA-256 → content, from LFS
        self.calls: list[str] = []
        self.broken = False  # takes no blobs
        self.requests: list[tuple[str, str]] = []  # (method, path) of everything that was read
        self.failing: set[str] = set()  # names of files that cannot be read
        self.sent: dict[str, int] = {}  # name of a file → bytes of it that were sent

    def publish(self, repo: str, folder: Path) -> None:
        """Hold the files of a folder as a public repository."""
        self.visibility[repo] = "public"
        self.files[repo] = {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        owner, name, *rest = path.removeprefix("/api/models").removeprefix("/content").strip("/").split("/")
        repo = f"{owner}/{name}"
        files = self.server.files.get(repo, {})
        if repo not in self.server.visibility:
            self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/content/"):
            self._send(repo, "/".join(rest))
        elif not path.startswith("/api/"):
            self._resolve(repo, "/".join(rest[2:]))
        elif rest[:1] == ["tree"]:
            self._answer([_entry(path, content) for path, content in files.items()])
        else:
            siblings = [{"rfilename": path} for path in files]
            private = self.server.visibility[repo] == "private"
            self._answer({"id": repo, "sha": COMMIT, "private": private, "tags": [], "siblings": siblings})

    def _resolve(self, repo: str, path: str) -> None:
        """Answer /OWNER/NAME/resolve/REVISION/PATH: with the file, or for LFS with the place of its content."""
        content = self.server.files[repo].get(path)
        if path in self.server.failing:
            self._answer({"error": "not today"}, 403)
        elif content is None:
            self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        elif path.endswith(LARGE):
            linked = {"X-Linked-ETag": f'"{_sha256(content)}"', "X-Linked-Size": str(len(content))}
            headers = {"Location": f"{self.server.endpoint}/content/{repo}/{path}", "X-Repo-Commit": COMMIT}
            self._answer({}, 302, linked | headers)
        else:
            self._send(repo, path)

    def _send(self, repo: str, path: str) -> None:
        """Send a file, or the part of it that the request's Range names."""
        content = self.server.files[repo][path]
        headers = {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._reply(content[start:], 206 if start else 200, headers)
        if self.command == "GET":
            self.server.sent[path] = self.server.sent.get(path, 0) + len(content) - start

    def do_PUT(self) -> None:
        content = self._body()
        assert self.path == f"/blob/{_sha256(content)}"
        if not self.server.broken:
            self.server.blobs[_sha256(content)] = content
        self._answer({}, 400 if self.server.broken else 200)

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
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = {path: "lfs" if path.endswith(LARGE) else "regular" for path in paths}
            self._answer({"files": [{"path": p, "shouldIgnore": False, "uploadMode": modes[p]} for p in paths]})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for one in objects:
                one["actions"] = {"upload": {"href": f"{self.server.endpoint}/blob/{one['oid']}"}}
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

    def _answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._reply(json.dumps(content).encode(), status, {"Content-Type": "application/json"} | (headers or {}))

    def _reply(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the terminal."""


def _entry(path: str, content: bytes) -> dict[str, Any]:
    """Describe a file as /tree/ does."""
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _blob(content)}
    lfs = {"oid": _sha256(content), "size": len(content), "pointerSize": 134}
    return found | ({"lfs": lfs} if path.endswith(LARGE) else {})


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _blob(content: bytes) -> str:
    """Return git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def online(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[Hub]:
    """A hub to which huggingface_hub turns, with an empty cache. It knows LFS, not Xet."""
    with running() as server:
        patch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        # No token of whoever runs the tests.
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no-token"))
        patch.setenv("HF_TOKEN", TOKEN)
        yield server


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
