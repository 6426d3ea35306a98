"""The products of the profile tiny as one archive per chapter, and the start of a learner who has only an archive."""

import json
import os
import shutil
import threading
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from course_lib import files
from course_lib.checkpoints import aozora
from course_lib.errors import CourseError
from course_lib.workspace import archive, chapters
from course_lib.workspace import products as workspace

from course_release.packages import run

PROFILE = "tiny"
# What docs/profiles.md tells a learner to type, with the address of the release in `$RELEASE`.
COMMANDS = """\
curl -fsSL --remote-name-all $RELEASE/tiny-{number}.zip $RELEASE/SHA256SUMS
sha256sum --check --ignore-missing SHA256SUMS && course run {number} --from-cache tiny-{number}.zip
"""


def pack(folder: Path) -> None:
    """Write tiny-N.zip for each chapter: its products and all that they are built from; and the weights of aozora.

    Raises CourseError if a product is missing or stale, or if the weights are not those that the course would accept.
    """
    weights = aozora.folder() / aozora.WEIGHTS
    if files.sha256(weights) != aozora.DIGEST:
        raise CourseError(f"{weights}: its SHA-256 is not DIGEST in course_lib/checkpoints/aozora.py; set it there")
    shutil.copyfile(weights, folder / aozora.ASSET)
    for chapter in chapters.CHAPTERS:
        products = workspace.with_inputs(chapter.products())
        for name, state in workspace.states(products).items():
            if state.kind != "fresh":
                raise CourseError(f"{name}: is {state.kind}; run `make course` before a release")
        archive.pack(products, folder / f"{PROFILE}-{chapter.number}.zip")


def rehearse(folder: Path, scratch: Path, course: Path) -> None:
    """Start at each chapter in an empty folder, as docs/profiles.md says, with an installed course.

    Raises CourseError if a checksum is wrong, or if a product of the chapter would have to be built.
    """
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ExitStack() as stack:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Whatever happens: a thread whose socket is closed would take a whole core for as long as the process lives.
        stack.callback(server.shutdown)
        release = {
            "RELEASE": f"http://127.0.0.1:{server.server_port}",
            "PATH": f"{course.parent}{os.pathsep}{os.environ['PATH']}",
            "no_proxy": "127.0.0.1",
        }
        for chapter in chapters.CHAPTERS:
            scratch.mkdir()
            lines = COMMANDS.format(number=chapter.number)
            said = run("sh", "-e", "-c", lines, folder=scratch, variables=release)
            states = json.loads(run(course, "status", "--json", folder=scratch))
            products = workspace.with_inputs(chapter.products())
            fresh = {each["product"] for each in states if each["state"] == "fresh"}
            if "building" in said or not fresh >= {product.name for product in products}:
                print(said)
                raise CourseError(f"{PROFILE}-{chapter.number}.zip: does not hold what chapter {chapter.number} needs")
            print(f"  chapter {chapter.number}: {len(products)} products, none of them built", flush=True)
            shutil.rmtree(scratch)


class _Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a log of its requests."""

    def log_message(self, *_: object) -> None:
        pass
