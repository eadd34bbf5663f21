"""The device `null`; the library does all the work."""


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """What the kernels leave out of what they declare."""
    dtypes = "float32 and int64"
    partial = {"matmul": "of two matrices", "cast": f"to {dtypes}", "copy": f"of {dtypes}"}
    return {"partial": partial} if level == "L2" else {}
