"""The device `null2`, which is `null` once more."""

from rabbet_backend_null import rabbet_conformance_params as rabbet_conformance_params
