"""Files from the network."""

import importlib
import os
import re
import urllib.parse
from typing import Any

from . import Absent

_REASON = "rabbet loads nothing from the network; read a file with load()"


def download_folder() -> str:
    """The folder in which PyTorch keeps what it loads: $TORCH_HOME, else torch/ in the user's folder for caches."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


class _HubFolder:
    """The folder of models: hub/ in `download_folder()`, or what `set_dir` was given."""

    chosen: str | None = None


def hub_folder() -> str:
    """The folder of downloaded models; rabbet downloads none."""
    return _HubFolder.chosen or os.path.join(download_folder(), "hub")


def set_hub_folder(d: str | os.PathLike[str]) -> None:
    """Set the folder that get_dir() names."""
    _HubFolder.chosen = os.path.expanduser(d)


def _progress(*args: Any, **kwargs: Any) -> Any:
    """The progress bar of the package tqdm, which PyTorch shows where it loads files."""
    return importlib.import_module("tqdm").tqdm(*args, **kwargs)


TABLE: dict[str, Absent] = {
    "hub": Absent(
        _REASON,
        functions="download_url_to_file help list load load_state_dict_from_url",
        others={
            "HASH_REGEX": re.compile(r"-([a-f0-9]*)\."),
            "urlparse": urllib.parse.urlparse,
            "get_dir": hub_folder,
            "set_dir": set_hub_folder,
            "_get_torch_home": download_folder,
        },
    ),
    "utils.model_zoo": Absent(_REASON, functions="load_url", others={"tqdm": _progress}),
}
