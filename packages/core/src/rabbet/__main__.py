"""The command `rabbet`, also `python -m rabbet`."""

import os
import signal
import sys
from collections.abc import Callable

from ._misspelled import nearest

USAGE = """usage: rabbet COMMAND

  run PROGRAM.py | -m MODULE [ARGUMENTS]
                               run a program in which torch is rabbet
  run --scan FILES             the torch names that programs use, and which of them are missing
  bottleneck [--html FILE] PROGRAM.py | -m MODULE [ARGUMENTS]
                               run a program as `run` does, and say where its time goes
  doctor [--layers | --coverage] [--json]
                               what is installed, what works, and how to fix what does not
  doctor --device NAME --for inference|training [--json]
                               which operators the device has kernels for, which it decomposes, which it lacks
  new-plugin --kind backend|ops|transform NAME [--into FOLDER]
                               write the project of a plugin: builds, has tests, says what to do next
  emit --dialect cpu|c FOLDER  write the records' elementwise formulas as source text, for a backend's build
  cmakedir                     the folder of RabbetConfig.cmake: pass it as -DRabbet_DIR
  version                      the version of rabbet-core (also --version, -V)
  help                         this text (also --help, -h)"""

_HELP = ("-h", "--help", "help")
_ALIASES = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}
_COMMANDS = ("run", "bottleneck", "doctor", "new-plugin", "emit", "cmakedir", "version", "help")


def _cmake_folder() -> str:
    from . import get_include

    return os.path.join(os.path.dirname(get_include()), "cmake")


def _version() -> str:
    from . import __version__

    return __version__


_PRINTED: dict[str, Callable[[], str]] = {
    "cmakedir": _cmake_folder,
    "version": _version,
    "help": lambda: USAGE,
}


def _print(command: str, arguments: list[str]) -> int:
    """Print what a command without arguments prints."""
    if not arguments:
        print(_PRINTED[command]())
        return 0
    if arguments[0] in _HELP:
        print(USAGE)
        return 0
    print(f"rabbet {command}: takes no arguments, got {' '.join(arguments)}", file=sys.stderr)
    return 2


def _refuse(command: str) -> int:
    """Say that there is no such command, and which one may be meant."""
    near = nearest(command, _COMMANDS)
    hint = f"did you mean '{near}'?" if near else f"commands: {', '.join(_COMMANDS)}"
    print(f"rabbet: there is no command '{command}'; {hint}", file=sys.stderr)
    return 2


def _bottleneck(arguments: list[str]) -> int:
    try:
        from rabbet.profiler._bottleneck import main as bottleneck
    except ModuleNotFoundError as error:  # names the wheel
        print(f"rabbet bottleneck: {error}", file=sys.stderr)
        return 1
    return bottleneck(arguments)


def _dispatch(command: str, arguments: list[str]) -> int:
    if command in _PRINTED:
        return _print(command, arguments)
    if command == "run":
        from ._as_torch.run import main as run

        return run(arguments)
    if command == "bottleneck":
        return _bottleneck(arguments)
    if command == "doctor":
        from ._doctor import main as doctor

        return doctor(arguments)
    if command == "new-plugin":
        from ._new_plugin import main as new_plugin

        return new_plugin(arguments)
    if command == "emit":
        from ._emit import main as emit

        return emit(arguments)
    return _refuse(command)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = sys.argv[1:] if arguments is None else arguments
    if not args:
        print(USAGE, file=sys.stderr)
        return 2
    command = _ALIASES.get(args[0], args[0])
    if command in ("run", "bottleneck"):  # a program handles its own output
        return _dispatch(command, args[1:])
    try:
        code = _dispatch(command, args[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 128 + signal.SIGPIPE
    return code


if __name__ == "__main__":
    sys.exit(main())
