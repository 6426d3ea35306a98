"""The `course` command: starts a verb, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 bad data, 2 wrong use, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM), 129 hung up (SIGHUP).
The verbs are in verbs.py. Nothing else is imported here before signals are handled: imports take half a second, in which
Ctrl-C would show a traceback.
"""

import errno
import os
import signal
import sys

# `typing` would double what is imported before signals are handled
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

SAYING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


class Terminated(SystemExit):
    """SIGTERM or SIGHUP: ends the process after its `finally` blocks have removed what is half done."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a verb and ends the process with its exit code. `arguments` default to the command line."""
    before = _on_signals(_end_at_once, _end_at_once)
    try:
        code = _started(arguments)
    except KeyboardInterrupt:
        code = _stopped(signal.SIGINT)
    finally:
        # nothing is left to clean up: while Python shuts down, a signal ends it without a traceback
        if arguments is None:
            _on_signals(signal.SIG_DFL, signal.SIG_DFL)
        else:
            _restore(before)
    sys.exit(code)


def _started(arguments: list[str] | None) -> int:
    """Runs a verb once everything is imported."""
    import io

    from course_lib import verbs  # noqa: F401

    # a terminal without Japanese shows ? instead of failing
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    _on_signals(signal.default_int_handler, _terminate)
    return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    """Runs a verb; returns its exit code."""
    import typer

    from course_lib import verbs
    from course_lib.errors import CourseError

    try:
        code = verbs.app(arguments, prog_name="course", standalone_mode=False)
        sys.stdout.flush()
        # typer returns this for Ctrl-C
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
    except CourseError as error:
        return _say(str(error), error.exit_code)
    # an option or argument that does not fit; or no verb, with the help as message
    except typer.TyperException as error:
        text = error.format_message()
        return _say(text if "\n" in text else f"{text} (see `course --help`)", 2)
    except (typer.Abort, KeyboardInterrupt):
        return _stopped(signal.SIGINT)
    except Terminated as error:
        return _stopped(signal.Signals(int(str(error.code)) - 128))
    # `course … | head`: the reader has enough
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        return _say(f"{error.filename or _nameless(error)}: {error.strerror or error}", 1)
    return 0


def _on_signals(interrupt: "Any", terminate: "Any") -> "dict[signal.Signals, Any]":
    """Handles the signals that end a process, except those that are ignored (`nohup`); returns the handlers before."""
    before = {number: signal.getsignal(number) for number in SAYING}
    wanted = {number: interrupt if number == signal.SIGINT else terminate for number in SAYING}
    _restore({number: wanted[number] for number in SAYING if before[number] not in (signal.SIG_IGN, None)})
    return before


def _restore(handlers: "dict[signal.Signals, Any]") -> None:
    import threading

    # only the main thread may handle signals
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)


def _end_at_once(number: int, _frame: "FrameType | None") -> None:
    """During the imports: nothing is being written yet."""
    os._exit(_stopped(signal.Signals(number)))


def _terminate(number: int, _frame: "FrameType | None") -> None:
    """Ends the process by an exception, once: `timeout` and service managers may send a second signal during the clean-up.

    Native code, such as a training of sentencepiece, is not interrupted: the exception comes when that code returns.
    """
    _restore(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN))
    raise Terminated(128 + number)


def _stopped(number: signal.Signals) -> int:
    return _say(f"{SAYING[number]}; earlier products are as they were", 128 + number)


def _nameless(error: OSError) -> str:
    """What an error is about that names no file: all writers of files name theirs, which leaves the standard output."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN):
        _discard_output()
        return "standard output"
    return "file"


def _discard_output() -> None:
    """Drops what the standard output still holds: Python would try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: int) -> int:
    print(message if "Usage:" in message else "course: " + " ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
