"""The device `null`; the library does all the work."""


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """What the kernels leave out of what they declare."""
    partial = {
        "matmul": "of two matrices",
        "cast": "to float32 and int64",
        "copy": "of float32 and int64",
    }
    return {"partial": partial} if level == "L2" else {}
