"""The command `rabbet`, also `python -m rabbet`."""

import os
import sys

USAGE = """usage: rabbet COMMAND

  run PROGRAM.py | -m MODULE [ARGUMENTS]
                               run a program in which torch is rabbet
  run --scan FILES             the torch names that programs use, and which of them are missing
  doctor [--layers | --coverage] [--json]
                               what is installed, what works, and how to fix what does not
  doctor --device NAME --for inference|training [--json]
                               which operators the device has kernels for, which it decomposes, which it lacks
  new-plugin --kind backend|ops|transform NAME [--into FOLDER]
                               write the project of a plugin: builds, has tests, says what to do next
  emit --dialect cpu|c FOLDER  write the records' elementwise formulas as source text, for a backend's build
  cmakedir                     the folder of RabbetConfig.cmake: pass it as -DRabbet_DIR
  version                      the version of rabbet-core"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = sys.argv[1:] if arguments is None else arguments
    if args[:1] == ["run"]:
        from ._as_torch.run import main as run

        return run(args[1:])
    if args[:1] == ["doctor"]:
        from ._doctor import main as doctor

        return doctor(args[1:])
    if args[:1] == ["new-plugin"]:
        from ._new_plugin import main as new_plugin

        return new_plugin(args[1:])
    if args[:1] == ["emit"]:
        from ._emit import main as emit

        return emit(args[1:])
    if args == ["cmakedir"]:
        from . import get_include

        print(os.path.join(os.path.dirname(get_include()), "cmake"))
        return 0
    if args == ["version"]:
        from . import __version__

        print(__version__)
        return 0
    print(USAGE, file=sys.stderr if args not in (["-h"], ["--help"]) else sys.stdout)
    return 0 if args in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main())
