"""Compile kernels ahead into one file, `kernels.seed`, that the wheel brings.

    python packages/backend-cuda/tools/make_seed_pack.py [--nvrtc libnvrtc.so.13] [--sources FOLDER] [--if-there]

Needs NVRTC (pip install nvidia-cuda-nvrtc) and no GPU. The texts are those that tools/common_kernels.py asks the installed
backend for, or the *.cu of a folder that RABBET_CUDA_KEEP_SOURCES named. The file goes where CMake looks for it when the
wheel is built. csrc/launch/seed_pack.h says how it is laid out: an image is found by the hash of its text, so that a pack
of other texts gives none.
"""

import argparse
import hashlib
import struct
import sys
import zlib
from pathlib import Path

from kernel_texts import PACKAGE, raw_texts
from nvrtc import Compiled, CompileError, compile_all, find_nvrtc, options_of

TARGET = PACKAGE / "build/kernels.seed"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")  # with sm_120 the wheel would have more than 10 MB
MAGIC = b"rabbet seed 1\n"
GROUP = 4 << 20  # bytes that are inflated together


def key_of(text: str, target: str) -> bytes:
    """As image.cpp has it, without a compiler's name."""
    options = "".join(f"{option} " for option in options_of(text, target))
    return hashlib.sha256(text.encode() + b"\0" + options.encode()).digest()


def write_pack(path: Path, images: dict[tuple[str, str], bytes]) -> None:
    """Write what `images` says of texts and architectures."""
    groups: list[bytes] = []
    entries = []
    current, architecture = bytearray(), ""
    for (text, target), image in sorted(images.items(), key=lambda pair: pair[0][::-1]):
        if current and (target != architecture or len(current) + len(image) > GROUP):
            groups.append(bytes(current))
            current.clear()
        architecture = target
        entries.append((key_of(text, target), len(groups), len(current), len(image)))
        current += image
    groups.append(bytes(current))
    packed = [zlib.compress(group, 9) for group in groups]
    head = MAGIC + struct.pack("<II", len(groups), len(entries))
    offset = len(head) + 16 * len(groups) + 44 * len(entries)
    for group, data in zip(groups, packed, strict=True):
        head += struct.pack("<QII", offset, len(data), len(group))
        offset += len(data)
    for entry in sorted(entries):
        head += struct.pack("<32sIII", *entry)
    path.write_bytes(head + b"".join(packed))


def image(made: Compiled | CompileError) -> bytes:
    if isinstance(made, CompileError):
        raise made
    return made.cubin


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvrtc", help="path of libnvrtc.so")
    parser.add_argument("--sources", type=Path, help="folder of *.cu")
    parser.add_argument("--output", type=Path, default=TARGET)
    parser.add_argument("--if-there", action="store_true", help="no pack without NVRTC")
    given = parser.parse_args(arguments)
    given.output.unlink(missing_ok=True)
    library = find_nvrtc(given.nvrtc)
    if not library:
        if given.if_there:
            print("no seed pack: NVRTC is not installed")
            return 0
        parser.error("NVRTC was not found: pip install nvidia-cuda-nvrtc, or --nvrtc PATH")
    if given.sources:
        texts = sorted({path.read_text() for path in given.sources.glob("*.cu")})
    else:
        texts = sorted(set(raw_texts(PACKAGE / "tools/common_kernels.py").values()))
    wanted = [(text, target) for text in texts for target in ARCHITECTURES]
    images = dict(zip(wanted, compile_all(library, wanted, image), strict=True))
    given.output.parent.mkdir(exist_ok=True)
    write_pack(given.output, images)
    size, whole = given.output.stat().st_size, sum(map(len, images.values()))
    print(f"{given.output}: {len(texts)} kernels, {len(images)} cubins, {whole} -> {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
