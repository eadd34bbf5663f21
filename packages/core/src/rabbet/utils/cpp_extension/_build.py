"""Compiles and links an extension, and keeps the outputs that are still current.

A record beside the library has hashes of the commands and of all files that the compiler read.

    DIRECTORY/NAME.so           the library, which a build replaces atomically
    DIRECTORY/NAME.build.json   the record
    DIRECTORY/NAME.lock         locked by the building process; the system unlocks it when that process ends
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ... import get_include


class Job(NamedTuple):
    """The arguments of a build."""

    function: str  # the function that errors name
    name: str
    output: str  # the file name of the library or program
    sources: Sequence[str]
    directory: str
    cflags: Sequence[str]
    ldflags: Sequence[str]
    includes: Sequence[str]
    is_standalone: bool
    is_verbose: bool
    keeps_objects: bool


def _is_c(source: str) -> bool:
    return source.endswith(".c")


def compiler(is_c: bool = False) -> list[str]:
    """The command of the C++ compiler ($CXX, else c++) or the C compiler ($CC, else cc)."""
    return shlex.split(os.environ.get("CC" if is_c else "CXX") or ("cc" if is_c else "c++"))


def definitions(name: str) -> list[str]:
    """The options that define the macros with the extension's name."""
    return [f"-DRABBET_EXTENSION_NAME={name}", f"-DTORCH_EXTENSION_NAME={name}"]


def common_flags(source: str) -> list[str]:
    """The compiler options of all extensions. The user's options follow and take precedence."""
    return [
        "-O2", "-fPIC", "-std=c11" if _is_c(source) else "-std=c++17", "-fvisibility=hidden", "-Wall",
        "-Wno-missing-field-initializers",
    ]  # fmt: skip


@contextlib.contextmanager
def built(job: Job) -> Iterator[tuple[str, str]]:
    """Build outdated files. The lock is held until the block ends, so that no other process replaces them.

    Yields:
        The path of the library or program, and a digest of everything that it depends on.

    Raises:
        RuntimeError: with the failed commands and the compiler's output.
    """
    with _locked(job):
        yield _Builder(job).run()


@contextlib.contextmanager
def _locked(job: Job) -> Iterator[None]:
    """Hold the lock of an extension, which one thread of one process has at a time."""
    path = os.path.join(job.directory, f"{job.name}.lock")
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if job.is_verbose:
                print(f"waiting for {path}, as another process builds '{job.name}'", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Builder:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._record_path = os.path.join(job.directory, f"{job.name}.build.json")
        self._hash_of_file = functools.cache(_hash_of_file)
        self._objects = _object_names(job.sources)

    def run(self) -> tuple[str, str]:
        job, output = self._job, os.path.join(self._job.directory, self._job.output)
        record = self._read_record()
        compiled: dict[str, Any] = record["objects"]
        stale = [s for s in job.sources if not self._is_current(compiled.get(s), s)]
        link = self._link("")
        digest = self._digest(compiled, link)
        if not stale and os.path.isfile(output) and record["digest"] == digest:
            self._say(f"'{job.name}' is up to date: {output}")
            return output, digest
        needed = [s for s in job.sources if s in stale or not os.path.isfile(self._object(s))]
        kept = {s: compiled[s] for s in job.sources if s not in needed}
        compiled = {**kept, **self._compile_all(needed)}
        digest = self._digest(compiled, link)
        self._write_record({"objects": compiled, "digest": None})
        self._link_to(output)
        self._write_record({"objects": compiled, "digest": digest})
        if not job.keeps_objects:
            for source in job.sources:
                os.unlink(self._object(source))
        return output, digest

    # ---- commands

    def _object(self, source: str) -> str:
        return os.path.join(self._job.directory, self._objects[source])

    def _compile(self, source: str) -> list[str]:
        folders = [get_include(), *self._job.includes]
        return [
            *compiler(_is_c(source)), *common_flags(source), *definitions(self._job.name),
            *(f"-I{folder}" for folder in folders), "-isystem", sysconfig.get_paths()["include"],
            *self._job.cflags, "-c", source,
        ]  # fmt: skip

    def _link(self, output: str) -> list[str]:
        linker = compiler(all(map(_is_c, self._job.sources)))
        shape = [] if self._job.is_standalone else ["-shared"]
        objects = [self._object(source) for source in self._job.sources]
        return [*linker, *shape, *objects, *self._job.ldflags, "-o", output]

    def _compile_all(self, sources: Sequence[str]) -> dict[str, Any]:
        """Compile the sources in parallel and return the records of their objects."""
        most = os.environ.get("MAX_JOBS", "")
        jobs = int(most) if most.isdecimal() and int(most) else os.cpu_count() or 1
        with ThreadPoolExecutor(max(1, min(jobs, len(sources)))) as pool:
            results = list(pool.map(self._compile_one, sources))
        self._fail_if([error for _, error in results])
        return {source: entry for source, (entry, _) in zip(sources, results, strict=True)}

    def _compile_one(self, source: str) -> tuple[Any, str]:
        """Compile a source and return the record of its object and the error message."""
        with tempfile.TemporaryDirectory(dir=self._job.directory) as folder:
            made, read = os.path.join(folder, "made.o"), os.path.join(folder, "made.d")
            error = self._run([*self._compile(source), "-MMD", "-MF", read, "-o", made])
            if error:
                return None, error
            files = _dependencies(read)
            os.replace(made, self._object(source))
        entry = {
            "command": self._hash_of_command(source),
            "files": {f: self._hash_of_file(f) for f in files},
        }
        return entry, ""

    def _link_to(self, output: str) -> None:
        with tempfile.TemporaryDirectory(dir=self._job.directory) as folder:
            made = os.path.join(folder, self._job.output)
            self._fail_if([self._run(self._link(made))])
            os.replace(made, output)

    def _run(self, command: list[str]) -> str:
        """Run a command and return an error message with its output, which is empty if it succeeded."""
        self._say(shlex.join(command))
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )  # fmt: skip
        except OSError as error:
            return (
                f"{command[0]} cannot be run: {error}. Extensions need a C++ compiler: install one, or name it in the "
                "environment variables CXX and CC"
            )
        if done.returncode:
            return f"{shlex.join(command)}\n{done.stdout}"
        if done.stdout.strip():
            self._say(done.stdout.rstrip())
        return ""

    def _fail_if(self, errors: Sequence[str]) -> None:
        """Raise an error with the messages that are not empty, if there are any."""
        said = [error for error in errors if error]
        if said:
            raise RuntimeError(
                f"{self._job.function}: Error building extension '{self._job.name}':\n"
                + "\n".join(said)
            )

    def _say(self, text: str) -> None:
        if self._job.is_verbose:
            print(text, flush=True)

    # ---- the record

    def _read_record(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError), open(self._record_path) as file:
            found = json.load(file)
            if isinstance(found, dict) and found.keys() == {"objects", "digest"}:
                return found
        return {"objects": {}, "digest": None}

    def _write_record(self, record: dict[str, Any]) -> None:
        write(self._record_path, json.dumps(record))

    def _is_current(self, entry: Any, source: str) -> bool:
        return (
            isinstance(entry, dict)
            and entry.get("command") == self._hash_of_command(source)
            and all(self._hash_of_file(f) == h for f, h in entry["files"].items())
        )

    def _hash_of_command(self, source: str) -> str:
        """A hash of the command that compiles a source and of the compiler's version."""
        version = version_of(tuple(compiler(_is_c(source))))
        return _hash_of([version, *self._compile(source)])

    def _digest(self, compiled: dict[str, Any], link: list[str]) -> str:
        return _hash_of([[s, compiled.get(s)] for s in self._job.sources] + [link])


def _object_names(sources: Sequence[str]) -> dict[str, str]:
    """A file name for the object of each source, which is unique even if two folders have sources of one name."""
    names = {}
    for source in sources:
        tag = hashlib.sha256(source.encode()).hexdigest()[:8]
        names[source] = f"{os.path.splitext(os.path.basename(source))[0]}-{tag}.o"
    return names


def _dependencies(path: str) -> list[str]:
    """The files in the make rule that a compiler wrote. The rule escapes spaces by backslashes."""
    with open(path) as file:
        text = file.read().replace("\\\n", " ")
    files = text.partition(": ")[2]
    return [f.replace("\\ ", " ") for f in re.findall(r"(?:\\.|[^\s\\])+", files)]


def _hash_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _hash_of_file(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@functools.cache
def version_of(compiler: tuple[str, ...]) -> str:
    """The output of a compiler's `--version`; empty if it cannot be run."""
    try:
        done = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout


def write(path: str, text: str) -> None:
    """Write a file atomically: readers see the old text or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
