"""Models of folders with a `hubconf.py`, and files of weights by their URL.

    hub.list("models/resnet", source="local")            # names of its entry points
    net = hub.load("models/resnet", "resnet18", source="local")
    weights = hub.load_state_dict_from_url("file:///data/resnet18-bfd8deac.pth", check_hash=True)

The names and their meaning are those of `torch.hub`. Repositories are not downloaded: a name such as "owner/repo:branch"
is looked up among the folders in `get_dir()`, where PyTorch keeps those that it downloaded.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import tempfile
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from .serialization import load as load_file

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # bfd8deac of resnet18-bfd8deac.pth
READ_DATA_CHUNK = 128 * 1024
_CONF = "hubconf.py"
_REPOSITORY = re.compile(r"([^/:]+)/([^/:]+)(?::(.+))?")
_hub_dir: str | None = None


# ---- folders


def _get_torch_home() -> str:
    """The folder in which PyTorch keeps what it loads: $TORCH_HOME, else torch/ in the user's folder for caches."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of models and weights: what `set_dir` was given, else hub/ in $TORCH_HOME or ~/.cache/torch."""
    if os.getenv("TORCH_HUB"):
        warnings.warn(
            "TORCH_HUB is deprecated, please use env TORCH_HOME instead", UserWarning, stacklevel=2
        )
    return _hub_dir or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder of models and weights."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


def _folder(what: str, repo: Any, source: str, is_forced: bool) -> str:
    """The folder of a repository."""
    if not isinstance(source, str) or source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if not isinstance(repo, (str, os.PathLike)):
        raise TypeError(f"hub.{what}: expected the name of a folder, got {type(repo).__name__}")
    if source == "local":
        folder = os.path.realpath(os.path.expanduser(repo))
    else:
        folder = _downloaded(what, os.fspath(repo), is_forced)
    if not os.path.isfile(os.path.join(folder, _CONF)):
        raise FileNotFoundError(f"hub.{what}: the folder {folder!r} has no {_CONF}")
    return folder


def _downloaded(what: str, repo: str, is_forced: bool) -> str:
    """The folder in `get_dir()` of a repository that PyTorch downloaded."""
    found = _REPOSITORY.fullmatch(repo)
    if found is None:
        raise ValueError(
            f"hub.{what}: expected repo_owner/repo_name[:branch or tag], got {repo!r}; a folder needs source='local'"
        )
    owner, name, ref = found.groups()
    refs = ["main", "master"] if ref is None else [ref.replace("/", "_")]
    folders = [os.path.join(get_dir(), f"{owner}_{name}_{r}") for r in refs]
    there = next(filter(os.path.isdir, folders), None)
    if there is None or is_forced:
        raise RuntimeError(
            f"hub.{what}: rabbet downloads no repositories; clone {repo!r} and name its folder with source='local'"
            + ("" if is_forced else f" (there is no {folders[0]!r})")
        )
    return there


# ---- entry points


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the folder's code removed it
            sys.path.remove(folder)


def _conf(folder: str) -> types.ModuleType:
    """The module of a folder's hubconf.py; modules beside it can be imported meanwhile."""
    path = os.path.join(folder, _CONF)
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    needed = getattr(module, "dependencies", None) or ()
    missing = [name for name in needed if not _is_there(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _is_there(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # a parent is missing, or a module without a spec
        return False


def _entry(module: types.ModuleType, model: Any) -> Callable[..., Any]:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    entry = getattr(module, model, None)
    if not callable(entry):
        names = ", ".join(_entries(module)) or "none"
        raise RuntimeError(f"Cannot find callable {model} in hubconf; its entry points: {names}")
    found: Callable[..., Any] = entry
    return found


def _entries(module: types.ModuleType) -> builtins.list[str]:
    return [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("_")]


def list(
    github: str | os.PathLike[str],
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
    verbose: bool = True,
    *,
    source: str = "github",
) -> builtins.list[str]:
    """The names of a repository's entry points: the callables of its hubconf.py without a leading underscore.

    Args:
        github: "owner/name", or "owner/name:branch", of a repository in `get_dir()`; a folder with `source="local"`.
        force_reload: ask for a new download, which rabbet refuses.
        skip_validation, trust_repo, verbose: no effect, as nothing is downloaded.
        source: "github" or "local".

    Raises:
        RuntimeError: if the repository is not in `get_dir()`, or packages that it needs are missing.
        FileNotFoundError: if the folder has no hubconf.py.
        ValueError: for another `source`, or a name of another form.
    """
    folder = _folder("list", github, source, force_reload)
    with _importing_from(folder):
        return _entries(_conf(folder))


def help(
    github: str | os.PathLike[str],
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
    *,
    source: str = "github",
) -> str | None:
    """The docstring of an entry point.

    Args:
        github: as of `list`.
        model: the name of the entry point.
        force_reload, skip_validation, trust_repo, source: as of `list`.

    Raises:
        RuntimeError: as of `list`, or if there is no such entry point.
        ValueError: as of `list`, or if `model` is not a str.
    """
    folder = _folder("help", github, source, force_reload)
    with _importing_from(folder):
        return _entry(_conf(folder), model).__doc__


def load(
    repo_or_dir: str | os.PathLike[str],
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: bool | str | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call an entry point of a repository: the result is usually a model.

    Args:
        repo_or_dir: as of `list`; a folder with `source="local"`.
        model: the name of the entry point.
        args, kwargs: its arguments.
        source, force_reload: as of `list`.
        trust_repo, verbose, skip_validation: no effect, as nothing is downloaded.

    Raises:
        RuntimeError, FileNotFoundError, ValueError: as of `help`.

    Example:
        >>> net = hub.load("models/resnet", "resnet18", source="local", num_classes=10)
    """
    folder = _folder("load", repo_or_dir, source, force_reload)
    with _importing_from(folder):
        return _entry(_conf(folder), model)(*args, **kwargs)


# ---- files


def tqdm(*args: Any, **kwargs: Any) -> Any:
    """The progress bar of the package tqdm."""
    return importlib.import_module("tqdm").tqdm(*args, **kwargs)


def _bar(size: int | None, is_wanted: bool) -> Any:
    if is_wanted and importlib.util.find_spec("tqdm"):
        return tqdm(total=size, unit="B", unit_scale=True, unit_divisor=1024)
    return contextlib.nullcontext()


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download a file. It appears at `dst` only when it is complete and its hash is right.

    Args:
        url: http(s), ftp or file.
        dst: the path of the file, such as "/tmp/file".
        hash_prefix: the first digits of its SHA-256 hash.
        progress: show a progress bar, if the package tqdm is installed.

    Raises:
        RuntimeError: if the hash is another one, or the connection ends early.
        urllib.error.URLError: if the file cannot be read.
    """
    path = os.path.expanduser(os.fspath(dst))
    with urlopen(Request(url, headers={"User-Agent": "rabbet.hub"})) as source:
        length = source.headers.get("Content-Length")
        size = int(length) if length else None
        folder, name = os.path.split(path)
        handle, partial = tempfile.mkstemp(".partial", name + ".", folder or ".")
        try:
            digest, count = hashlib.sha256(), 0
            with os.fdopen(handle, "wb") as file, _bar(size, progress) as bar:
                while chunk := source.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    count += len(chunk)
                    if bar is not None:
                        bar.update(len(chunk))
            _check(url, digest.hexdigest(), hash_prefix, count, size)
            os.chmod(partial, 0o666 & ~_umask())
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise


def _check(url: str, digest: str, prefix: str | None, count: int, size: int | None) -> None:
    if size is not None and count != size:
        raise RuntimeError(f"download_url_to_file: got {count} of {size} bytes of {url}")
    if prefix is not None and not digest.startswith(prefix):
        raise RuntimeError(f'invalid hash value (expected "{prefix}", got "{digest}") of {url}')


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """Load the file of a URL, downloaded if it is not in `model_dir` already.

    Args:
        url: http(s), ftp or file.
        model_dir: the folder of the file, by default checkpoints/ in `get_dir()`.
        map_location: as of `load`.
        progress: as of `download_url_to_file`.
        check_hash: compare the file's SHA-256 hash with the digits in its name, as in "resnet18-bfd8deac.pth"; a name
            without them warns.
        file_name: the name of the file in `model_dir`, by default that in the URL.
        weights_only: as of `load`.

    Raises:
        ValueError: if there is no name of a file.
        RuntimeError: if the hash is another one.
        urllib.error.URLError: if the file cannot be read.
    """
    folder = (
        os.path.join(get_dir(), "checkpoints")
        if model_dir is None
        else os.path.expanduser(model_dir)
    )
    name = os.path.basename(urlparse(url).path) if file_name is None else file_name
    if not name:
        raise ValueError(f"load_state_dict_from_url: {url!r} does not end with the name of a file")
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        hashed = HASH_REGEX.search(name) if check_hash else None
        if check_hash and hashed is None:
            warnings.warn(
                f"load_state_dict_from_url: the name {name!r} has no hash to check", stacklevel=2
            )
        os.makedirs(folder, exist_ok=True)
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        download_url_to_file(url, path, hashed and hashed[1], progress)
    inner = _only_member(path)
    if inner is None:
        return load_file(path, map_location, weights_only=weights_only)
    with tempfile.TemporaryDirectory() as unpacked:
        with zipfile.ZipFile(path) as archive:
            member = Path(archive.extract(inner, unpacked))
        return load_file(member, map_location, weights_only=weights_only)


def _only_member(path: str) -> str | None:
    """The file in a zip archive of a single file, in which weights were once published; None for other files."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    return members[0].filename if len(members) == 1 and not members[0].is_dir() else None
