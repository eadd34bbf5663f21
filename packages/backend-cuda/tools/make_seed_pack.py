"""Compile kernels ahead into one file, `kernels.seed`, that the wheel brings.

    python packages/backend-cuda/tools/make_seed_pack.py [--nvrtc libnvrtc.so.13] [--sources FOLDER]

Needs NVRTC (pip install nvidia-cuda-nvrtc) and no GPU. The texts are those that a sweep of the
common operators asks for on the simulator, or the *.cu of a folder that RABBET_CUDA_KEEP_SOURCES
named. csrc/launch/seed_pack.h says how the file is laid out.
"""

import argparse
import hashlib
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nvrtc import Nvrtc, find_nvrtc, options_of

PACKAGE = Path(__file__).resolve().parent.parent
TARGET = PACKAGE / "src/rabbet_backend_cuda/kernels.seed"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
MAGIC = b"rabbet seed 1\n"
GROUP = 4 << 20  # bytes that are inflated together


def key_of(text: str, target: str) -> bytes:
    """As image.cpp has it, without a compiler's name."""
    options = "".join(f"{option} " for option in options_of(target))
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


def sweep(folder: Path) -> None:
    """Run the common operators on the simulator, which keeps the texts of their kernels."""
    import runpy

    environment = runpy.run_path(str(PACKAGE / "sim/build.py"))["build"]()
    environment["RABBET_CUDA_KEEP_SOURCES"] = str(folder)
    command = [sys.executable, str(PACKAGE / "tools/common_kernels.py")]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvrtc", help="path of libnvrtc.so")
    parser.add_argument("--sources", type=Path, help="folder of *.cu")
    parser.add_argument("--output", type=Path, default=TARGET)
    given = parser.parse_args(arguments)
    library = find_nvrtc(given.nvrtc)
    if not library:
        parser.error("NVRTC was not found: pip install nvidia-cuda-nvrtc, or --nvrtc PATH")
    compiler = Nvrtc(library)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.sources or Path(scratch)
        if not given.sources:
            sweep(folder)
        texts = sorted({path.read_text() for path in folder.glob("*.cu")})
    wanted = [(text, target) for text in texts for target in ARCHITECTURES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(lambda pair: compiler.compile(*pair).cubin, wanted))
    write_pack(given.output, dict(zip(wanted, images, strict=True)))
    size = given.output.stat().st_size
    whole = sum(map(len, images))
    print(f"{given.output}: {len(texts)} kernels, {len(images)} cubins, {whole} -> {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
