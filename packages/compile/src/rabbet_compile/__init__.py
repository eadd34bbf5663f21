"""Regions: the elementwise calls of a compiled function run later and fused, with the results of eager calls.

`rabbet.compile` uses this package where it is installed. `RABBET_COMPILE=off` in the environment leaves functions as
they are, `RABBET_COMPILE=check` runs everything that is fused a second time eagerly and compares the results.
"""

import contextlib
import sys
from collections.abc import Iterator

from rabbet._plugins import require_layer

require_layer("compile")

from ._api import compile  # noqa: E402  (the binding needs the plugin)
from ._explain import Explanation, Flush, explain  # noqa: E402
from ._region import region  # noqa: E402
from ._settings import configure, is_in_region, reset, settings, totals  # noqa: E402

__all__ = [
    "Explanation",
    "Flush",
    "compile",
    "configure",
    "explain",
    "is_in_region",
    "region",
    "reset",
    "settings",
    "totals",
]


@contextlib.contextmanager
def _everything_deferred() -> Iterator[None]:
    before = settings()["least_bytes"]
    outermost = not is_in_region()
    if outermost:
        configure(least_bytes=0)
    try:
        with region():
            yield
    finally:
        if outermost:
            configure(least_bytes=before)


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """How the conformance kit switches the layer on: results of every size are deferred."""
    return {"enter": _everything_deferred} if level == "layer" else {}


from rabbet.library import module_imported  # noqa: E402

module_imported(sys.modules[__name__])
