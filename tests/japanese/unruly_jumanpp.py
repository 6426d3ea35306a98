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
    answer, comment, code = [], b"", 0
    for line in sys.stdin.buffer.read().removesuffix(b"\n").split(b"\n"):
        if line.startswith(b"# ") and len(line) > 2:
            comment = line
            continue
        if len(line) > 4096 or len(comment) > 1024:
            sys.stderr.write("byte size of input string is greater than maximum allowed (4096)")
            code = int(len(line) > 65535)
        else:
            answer += written(line.decode("utf-8", "surrogatepass"), separator)
        comment = b""
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


def written(text: str, separator: str) -> list[str]:
    if HANG in text:
        time.sleep(600)
    run, before = 0, ""
    for character in text:
        kind = unicodedata.name(character, "?").split(" ")[0]
        run = run + 1 if kind == before and kind in ("LATIN", "HIRAGANA", "KATAKANA", "CJK") else 1
        before = kind
        if run > 1000 or character == DIE:
            sys.stderr.write("std::bad_alloc")
            sys.stderr.flush()
            os._exit(134)
    return [] if LOSE in text else [separator.join(text).replace(CHANGE, "花")]


main()
