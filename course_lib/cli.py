"""The `course` executable, which runs a command and turns errors into a one-line message and an exit code.

Exit codes: 0 success, 1 bad data, 2 wrong usage, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM), 129 hung up
(SIGHUP), 141 if the reader of the output ended first (SIGPIPE). Signal handlers are installed before the commands are
imported: Ctrl-C during the imports would print a traceback.
"""

import errno
import os
import signal
import sys

# Importing `typing` would double the time until the signal handlers are installed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, TextIO

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


class Terminated(SystemExit):
    """Exception for SIGTERM or SIGHUP, so that `finally` blocks remove unfinished files before the process exits."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command, by default the one on the command line, and exit with its exit code."""
    _on_signals(_end_at_once, _end_at_once)
    _open_closed()
    try:
        code = _started(arguments)
    except KeyboardInterrupt:
        code = _stopped(signal.SIGINT)
    except Exception:
        if not _is_one_of_several():
            raise
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        # Nothing is left to clean up, so a signal during Python's shutdown may end the process without a traceback.
        if arguments is None:
            _on_signals(signal.SIG_DFL, signal.SIG_DFL)
    try:
        sys.stdout.flush()
    # A command that stopped because nobody reads its output has reported that already.
    except OSError:
        _discard(sys.stdout)
    if _is_one_of_several():
        # After an error, what libraries do at the end of a process could wait for the other ranks for ever.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_one_of_several() -> bool:
    """Return whether this process is one of several ranks that train together, see training/ranks.py."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def _open_closed() -> None:
    """Open what the caller has closed, as `>&-` does: the next file would get its number, and what is printed.

    The numbers lead to a device that cannot be written, so that a text for standard output does not vanish.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDONLY) < number:
                pass
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf8"))  # noqa: SIM115


def _started(arguments: list[str] | None) -> int:
    """Import the commands, run one and return its exit code."""
    from course_lib.errors import CourseError
    from course_lib.language import words
    from course_lib.settings import profiles

    try:
        # The table of commands is in the reader's language.
        words.require_language()
    except CourseError as error:
        return _report(str(error), error.exit_code)
    from course_lib.command_line import command_table  # noqa: F401

    profiles.make_absolute()
    # If the terminal encoding cannot represent Japanese, print ? instead of raising an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    _on_signals(signal.default_int_handler, _terminate)
    return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    """Run a command and return its exit code."""
    import typer

    from course_lib.command_line import command_table
    from course_lib.errors import CourseError
    from course_lib.language.words import tr

    # UsageError, which Typer before 0.29, such as Colab's, does not export.
    usage_error: Any = typer.BadParameter.__base__
    try:
        code = command_table.app(arguments, prog_name="course", standalone_mode=False)
        sys.stdout.flush()
        # Typer returns this code on Ctrl-C.
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
    except CourseError as error:
        return _report(str(error), error.exit_code)
    # A wrong option or argument, or no command. Without a command, the message is the help text.
    except usage_error as error:
        text = error.format_message()
        if "\n" not in text:
            from course_lib.command_line import usage

            command = error.ctx.command_path if error.ctx else "course"
            text = tr("{text} (see `{command} --help`)", text=usage.translated(text), command=command)
        return _report(text, 2)
    except (typer.Abort, KeyboardInterrupt):
        return _stopped(signal.SIGINT)
    except Terminated as error:
        return _stopped(signal.Signals(int(str(error.code)) - 128))
    # The reader closed the pipe, as `head` does in `course … | head`. Typer exits with code 1 if it notices that first.
    except (BrokenPipeError, SystemExit) as error:
        # Shell completion ends the process itself.
        if getattr(error, "code", None) == 0:
            return 0
        _discard(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as error:
        # All code that writes files names them, so a full disk without a name is that of standard output.
        full = error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EAGAIN)
        if full:
            _discard(sys.stdout)
        return _report(f"{error.filename or ('standard output' if full else 'file')}: {error.strerror or error}", 1)
    except (UnicodeEncodeError, TypeError) as error:
        # So Python, orjson and libraries refuse the name of a file that has other bytes than UTF-8.
        if "surrogates not allowed" not in str(error):
            raise
        return _report(tr("a path is not UTF-8; allowed: a path in UTF-8"), 2)
    except ValueError as error:
        # What every function of the system says to such a path, wherever it comes from: settings, a list of files.
        if not str(error).startswith("embedded null"):
            raise
        return _report(tr("a path holds a NUL character, which no path may have; allowed: any other"), 2)
    return 0


def _on_signals(interrupt: "Any", terminate: "Any") -> None:
    """Install handlers for the signals that terminate a process, but for those that it ignores, as under `nohup`."""
    import threading

    # Python allows signal handlers only in the main thread.
    if threading.current_thread() is threading.main_thread():
        for number in ENDINGS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, interrupt if number == signal.SIGINT else terminate)


def _end_at_once(number: int, _frame: "FrameType | None") -> None:
    """Handle a signal during the imports: exit at once, because nothing has been written yet."""
    os._exit(_stopped(signal.Signals(number)))


def _terminate(number: int, _frame: "FrameType | None") -> None:
    """Handle a signal by raising Terminated, and ignore further signals.

    `timeout` and service managers may send a second signal during cleanup. Native code, such as sentencepiece training,
    is not interrupted: the exception is raised when that code returns.
    """
    _on_signals(signal.getsignal(signal.SIGINT), signal.SIG_IGN)
    raise Terminated(128 + number)


def _stopped(number: signal.Signals) -> int:
    return _report(f"{ENDINGS[number]}; earlier products are unchanged", 128 + number)


def _discard(stream: "TextIO") -> None:
    """Discard the buffered output of a stream, which Python would otherwise try to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(message: str, code: int) -> int:
    try:
        print(message if "Usage:" in message else "course: " + " ".join(message.split()), file=sys.stderr)
    # The terminal is closed, so nobody reads the message.
    except OSError:
        _discard(sys.stderr)
    return code


if __name__ == "__main__":
    main()
