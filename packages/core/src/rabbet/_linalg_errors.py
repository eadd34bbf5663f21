"""The error of linear algebra, which decompositions raise and `rabbet.linalg` shows."""


class LinAlgError(RuntimeError):
    """What linear algebra raises for matrices that it cannot take."""


LinAlgError.__module__ = "rabbet.linalg"
