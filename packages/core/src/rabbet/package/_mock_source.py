"""The sources that a package stores for mocked modules."""

from importlib.resources import files

FILE = "_mock.py"
MODULE = (
    "from _mock import MockedObject\n\n\n"
    "def __getattr__(attr):\n"
    '    return MockedObject(__name__ + "." + attr, _suppress_err=True)\n'
)


def text() -> str:
    """The text of `_mock.py`."""
    return files(__package__).joinpath("_mocked_object.py").read_text("utf-8")
