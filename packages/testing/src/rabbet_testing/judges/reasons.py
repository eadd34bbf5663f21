"""Why something was not judged: the only reasons there are, each counted in the report."""

from __future__ import annotations

import enum
import re
from typing import NoReturn

import pytest

NOT_DECLARED, NOT_IMPLEMENTED, NOT_APPLICABLE = (
    "not declared",
    "not implemented",
    "not applicable",
)


class Reason(enum.Enum):
    """The outcome that a reason stands for, and what it means."""

    NO_KERNEL = (
        NOT_DECLARED,
        "no kernel is declared for the dtype, and no decomposition reaches it",
    )
    PARTIAL = (NOT_DECLARED, "the plugin declares the kernel as partial")
    DTYPE_REFUSED = (
        NOT_APPLICABLE,
        "the record's rules refuse the dtype, for tensors without memory too",
    )
    NO_EXAMPLE = (NOT_APPLICABLE, "no example of the record has a meaning here")
    NO_REFERENCE = (NOT_APPLICABLE, "the reference has no such call")
    NO_SUCH_FORM = (NOT_APPLICABLE, "the operator has no such form of call")
    OF_VALUES = (NOT_APPLICABLE, "what is refused depends on the data")
    NOT_DIFFERENTIABLE = (NOT_APPLICABLE, "there is nothing to differentiate")
    NOT_BATCHED = (NOT_APPLICABLE, "no loop of calls stands for the batch")
    NO_POLICY = (NOT_APPLICABLE, "the operator has no autocast policy of its own")
    NO_DOUBLE = (NOT_APPLICABLE, "finite differences of gradients need float64")
    OTHER_SUBJECT = (NOT_APPLICABLE, "subjects of this kind do not have this")
    REFUSED_BY_LAYER = (
        NOT_IMPLEMENTED,
        "the layer refuses the operator, or takes more, and says so",
    )
    CHANGED_BY_LAYER = (
        NOT_APPLICABLE,
        "the layer says that it changes what the operator does",
    )
    NO_RULE = (
        NOT_IMPLEMENTED,
        "the operator has no such rule, or says too little of its arguments",
    )
    NO_WHEEL = (NOT_IMPLEMENTED, "another wheel is needed")
    NO_TOOL = (NOT_IMPLEMENTED, "a tool of the machine is missing")
    NOT_OFFERED = (NOT_IMPLEMENTED, "the subject does not offer this, and need not")


def tagged(reason: Reason, detail: str) -> str:
    """A sentence whose reason the report counts."""
    return f"{reason.value[0]}: {detail} [{reason.name}]"


def reason_of(text: str) -> Reason | None:
    """The reason at the end of a sentence, or None."""
    found = re.search(r"\[([A-Z_]+)\]$", text)
    return Reason[found[1]] if found and found[1] in Reason.__members__ else None


def skip(reason: Reason, detail: str) -> NoReturn:
    """End the test: nothing is judged, for this reason."""
    pytest.skip(tagged(reason, detail))
