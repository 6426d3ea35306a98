"""A stand-in for the Juman++ v2 program with its documented misbehaviour, one word per character otherwise.

What it does wrong is what the real one does: it loses lines over 4096 bytes and what is not UTF-8, takes "# …" for a comment and loses the next line
after a long one, ignores options that it does not know and all after them, and dies of a long run of one class, losing what it had not yet
written. Beyond that some words make it hang, stop, or print too little or something else. $UNRULY chooses other programs:
no-model (a git checkout) and dead (cannot work any more).
"""

import os
import sys
import time
import unicodedata

HANG, DIE, LOSE, CHANGE = "眠", "死", "失", "化"
SEPARATOR = "--segment-separator="


def main() -> None:
    mode = os.environ.get("UNRULY", "")
    if mode == "no-model":
        sys.exit("Model file was not specified")
    if mode == "dead":
        os._exit(139)
    separator = options(sys.argv[1:])
    answer, code = [], 0
    for line in sentences(sys.stdin.buffer.read()):
        code = int(line is None or len(line) > 65535)
        text = readable(line)
        if text is not None:
            survive(text)
            answer += written(text, separator)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in answer).encode("utf-8", "surrogatepass"))
    sys.stdout.flush()
    os._exit(code)


def options(arguments: list[str]) -> str:
    separator = " "
    for argument in arguments:
        if argument.startswith(SEPARATOR):
            separator = argument.removeprefix(SEPARATOR)
        elif argument != "--segment" and not argument.startswith(("--model=", "--juman")):
            break
    return separator


def sentences(data: bytes) -> list[bytes | None]:
    """The lines without comments; None for one lost with its long comment."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found: list[bytes | None] = []
    comment = b""
    for line in lines:
        if line.startswith(b"# ") and len(line) > 2:
            comment = line
            continue
        found.append(None if len(comment) > 1024 else line)
        comment = b""
    return [*found, b""] if comment else found


def readable(line: bytes | None) -> str | None:
    if line is None or len(line) > 4096:
        complain("byte size of input string is greater than maximum allowed (4096)")
        return None
    try:
        return line.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        complain("Invalid UTF8 sequence")
        return None


def complain(about: str) -> None:
    sys.stderr.write(about)


def survive(text: str) -> None:
    if HANG in text:
        time.sleep(600)
    run, before = 0, ""
    for character in text:
        kind = unicodedata.name(character, "?").split(" ")[0]
        run = run + 1 if kind == before and kind in ("LATIN", "HIRAGANA", "KATAKANA", "CJK") else 1
        before = kind
        if run > 1000 or character == DIE:
            complain("std::bad_alloc")
            sys.stderr.flush()
            os._exit(134)


def written(text: str, separator: str) -> list[str]:
    if LOSE in text:
        return []
    return [separator.join(text).replace(CHANGE, "花")]


main()
