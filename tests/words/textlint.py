"""textlint on the Japanese texts: `python -m tests.words.textlint`.

docs/locale/ja/textlint has its rules and its versions, which npm installs. Where there is no npm, the texts are not
checked, and a line says so.
"""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.paths import REPOSITORY

from course_authors import catalogs, pages

TOOL = REPOSITORY / "docs" / "locale" / "ja" / "textlint"
# Seconds; npm may wait long for a network that is not there.
LIMIT = 300
# Installed for these versions.
STAMP = TOOL / "node_modules" / ".installed"
NPM = ("npm", "ci", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved", "--loglevel=error")


def main() -> int:
    """Return textlint's exit code, 0 if it cannot be installed."""
    lock = (TOOL / "package-lock.json").read_text(encoding="utf8")
    if not STAMP.exists() or STAMP.read_text(encoding="utf8") != lock:
        if not _installed():
            print("textlint: npm cannot install it; the Japanese texts are not checked")
            return 0
        STAMP.write_text(lock, encoding="utf8")
    with TemporaryDirectory() as folder:
        write(Path(folder))
        command = [f"{TOOL}/node_modules/.bin/textlint", "--config", f"{TOOL}/.textlintrc.json", "-f", "unix", "*.md"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        found = (ran.stdout + ran.stderr).replace(f"{Path(folder).resolve()}/", "")
        print(found.strip() or "textlint: no problem")
    return ran.returncode


def _installed() -> bool:
    try:
        return subprocess.run(NPM, cwd=TOOL, timeout=LIMIT).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def write(folder: Path) -> None:
    """Write the stored Japanese texts: each cell of a notebook, and each page."""
    for message in catalogs.read("ja", catalogs.NOTEBOOKS):
        # Titles and links are no sentences.
        if not message.id or not message.string or str(message.string).startswith("**出典"):
            continue
        # A field of an f-string in a code cell, such as {value!r}, is no text.
        plain = re.sub(r"\{[^{}]*\}", "1", str(message.string))
        (folder / f"{str(message.context).replace(' ', '-cell-')}.md").write_text(f"{plain}\n", encoding="utf8")
    for page in filter(Path.exists, (pages.edition(page, "ja") for page in pages.pages())):
        name = page.relative_to(REPOSITORY).as_posix().replace("/", "-")
        (folder / name).write_text(page.read_text(encoding="utf8"), encoding="utf8")


if __name__ == "__main__":
    sys.exit(main())
