"""Makes `pytest --pyargs rabbet_testing` know the options of the conformance kit.

pytest imports this in every run of an environment that has the kit, so it imports nothing itself and adds nothing
unless the kit is among the arguments.
"""

from typing import Any

KIT = "rabbet_testing"


def asks_for_kit(args: list[str]) -> bool:
    """Whether the arguments of pytest name the kit as a package to collect."""
    return "--pyargs" in args and any(
        a == KIT or a.startswith((KIT + ".", KIT + "::")) for a in args
    )


def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
    """Register the kit's plugin, with its options, where it is asked for."""
    if asks_for_kit(args):
        from rabbet_testing.conformance import plugin

        plugin.install(early_config.pluginmanager)
