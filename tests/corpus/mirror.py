"""A real HTTP server on the loopback that resumes downloads, and misbehaves on demand."""

import hashlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DUMP = "pages-articles-multistream.xml.bz2"


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass
class Page:
    body: bytes
    etag: str = '"one"'
    modified: str = "Sun, 01 Nov 2026 00:00:00 GMT"


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    if_range: str | None
    status: int = 0
    sent: int = 0  # body bytes


@dataclass
class Mirror:
    """What the server has, how it will treat the next requests for a path, and what it was asked."""

    address: str = ""
    pages: dict[str, Page] = field(default_factory=dict)
    tricks: dict[str, list[str]] = field(default_factory=dict)  # path -> one trick per request, then honest
    requests: list[Request] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def put(self, path: str, body: bytes, etag: str = '"one"') -> None:
        self.pages[path] = Page(body, etag)

    def dump(self, body: bytes, day: str = "20261101", etag: str = '"one"') -> str:
        """Publishes a dump with its sha1 sum; returns its path."""
        folder = f"/jawiki/{day}/"
        path = f"{folder}jawiki-{day}-{DUMP}"
        self.put(path, body, etag)
        real = "20261101" if day == "latest" else day
        lines = [
            f"{'0' * 40}  jawiki-{real}-pages-articles-multistream-index.txt.bz2",
            f"{'1' * 40}  jawiki-{real}-pages-articles-multistream1.xml-p1p114794.bz2",
            f"{hashlib.sha1(body).hexdigest()}  jawiki-{real}-{DUMP}",
        ]
        self.put(f"{folder}jawiki-{day}-sha1sums.txt", "\n".join(lines).encode())
        return path

    def dump_part(self, body: bytes, part: int, pages: str, day: str = "20261101") -> str:
        """Publishes a part of a dump, named by the range of its page ids, with its sha1 sum; returns its path."""
        name = f"pages-articles-multistream{part}.xml-{pages}.bz2"
        path = f"/jawiki/{day}/jawiki-{day}-{name}"
        self.put(path, body)
        real = "20261101" if day == "latest" else day
        sums = f"/jawiki/{day}/jawiki-{day}-sha1sums.txt"
        listed = self.pages[sums].body if sums in self.pages else b""
        line = f"{hashlib.sha1(body).hexdigest()}  jawiki-{real}-{name}\n"
        self.put(sums, line.encode() + listed)
        return path

    def of(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def sent(self, path: str) -> int:
        return sum(request.sent for request in self.of(path))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        tricks = self.mirror.tricks.get(self.path, [])
        trick, _, value = (tricks.pop(0) if tricks else "").partition(" ")
        self.asked = Request(self.command, self.path, self.headers["Range"], self.headers["If-Range"])
        self.mirror.requests.append(self.asked)
        page = self.mirror.pages.get(self.path)
        if trick == "status":
            return self.head(int(value), [], 0)
        if page is None:
            return self.head(404, [], 0)
        if trick == "silent":
            self.mirror.go_on.wait(10)
            self.close_connection = True
            return None
        headers = [pair for pair in [("ETag", page.etag), ("Last-Modified", page.modified)] if pair[1]]
        status, start, content = 200, 0, page.body
        same = self.asked.if_range in (None, page.etag, page.modified)
        if self.asked.range and same:
            start = int(self.asked.range.removeprefix("bytes=").removesuffix("-"))
            status = 206
            headers.append(("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"))
        self.head(status, headers, len(content) - start)
        return self.send(content[start:], trick, value)

    def head(self, status: int, headers: list[tuple[str, str]], length: int) -> None:
        self.asked.status = status
        self.send_response(status)
        for name, text in [*headers, ("Content-Length", str(length))]:
            self.send_header(name, text)
        self.end_headers()

    def send(self, content: bytes, trick: str, value: str) -> None:
        if trick in ("cut", "reset", "stall"):
            content = content[: int(value)]
        if trick == "flip":  # damaged on the way, of the right length
            content = content[:-1] + bytes([content[-1] ^ 1])
        self.wfile.write(content)
        self.wfile.flush()
        self.asked.sent = len(content)
        if trick == "stall":
            self.mirror.go_on.wait(10)
        if trick == "reset":
            time.sleep(0.05)  # a reset overtakes what is still under way
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if trick in ("cut", "reset", "stall"):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that was killed


@contextmanager
def serving(port: int = 0) -> Iterator[Mirror]:
    """A mirror that answers while the block runs, on a free port if none is given."""
    found = Mirror()
    server = Server(("127.0.0.1", port), type("Bound", (Handler,), {"mirror": found}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        found.go_on.set()
        server.shutdown()
        server.server_close()
