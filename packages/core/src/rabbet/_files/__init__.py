"""Reading and writing files of tensors: what `rabbet.save` and `rabbet.load` are made of.

A safetensors file is 8 bytes with the header's length, a JSON header, and the tensors' bytes
(https://huggingface.co/docs/safetensors). Our own metadata in the header:

    rabbet.version   the version of what follows; 2. Files without it are of before checksums, or not ours
    rabbet.crc32     the CRC-32 of the header (with these 8 digits as zeros), then one of each tensor in header order
    rabbet.skeleton  the structure, where it is more than a dict of separate tensors (structure.py)

A file of PyTorch's is a pickle and the bytes of storages beside it (torch_file.py).

| file | what |
|---|---|
| `forms.py` | which form a file has |
| `header.py` | the header of a safetensors file: written, and checked when read |
| `memory.py` | the bytes of tensors |
| `sharing.py` | tensors that share memory become one entry and views of it |
| `structure.py` | nested values to JSON and back |
| `reading.py` | files, and the entries of safetensors files as tensors |
| `replacing.py` | a file is replaced as a whole |
| `torch_file.py` | PyTorch's files: the zip and the legacy form |
| `unpickling.py` | a machine that runs pickles without executing anything |
| `torch_names.py`, `numpy_values.py` | what the names in pickles mean: the allow list |
| `pickling.py` | values to pickles that PyTorch takes |
| `trusted.py` | objects of any class, to pickles and back, by Python's pickle: only where the user says so |
| `places.py` | devices of storages, as files name them |
| `safe.py` | classes and functions that the user declared to be safe |
"""

from .. import _C


class SerializationError(_C.RabbetError):
    """A file that cannot be read, or a value that cannot be saved."""

    __module__ = "rabbet.serialization"
