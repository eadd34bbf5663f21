"""Wheels of this tree's packages: those that were built before and match the sources, and the others built here.

A folder of wheels has a file `sources.json`: for each wheel its package, a hash of the sources that it was built from and
the C library it was built on. Wheels also come as the pieces `wheels.tar.NN` of an archive, as a run leaves them under $OUT.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path

from pip._vendor.packaging import tags, utils
from runner import ROOT, Check, Failed, Result
from supervise import kill

RECORD = "sources.json"
# What each package is built after: packages of a row need only those of the rows above.
WAVES = [
    ["core", "nn", "optim", "distributions", "testing", "rabbet"],
    ["backend-cuda", "backend-cpu", "autograd", "vmap", "profiler"],
    ["autocast"],
]
PACKAGES = [name for wave in WAVES for name in wave]
# Folders of other packages with headers and build rules that are compiled in.
COMPILED_IN = {
    "backend-cuda": ["core"],
    "backend-cpu": ["core"],
    "autograd": ["core"],
    "vmap": ["core"],
    "profiler": ["core"],
    "autocast": ["core", "autograd"],
}
NOT_SOURCES = {"tests", "tools", "sim", "build", "README.md", "__pycache__"}
PIECE = 15 << 20  # bytes of a file that is brought home
SMOKE = "import rabbet, rabbet.nn, rabbet.optim, rabbet.autograd, rabbet_backend_cuda; (rabbet.ones(2) + 1).sum().item()"


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def sources(package: str) -> str:
    """A hash of what goes into the wheel of a package."""
    folder = ROOT / "packages" / package
    parts = [p for p in sorted(folder.iterdir()) if p.name not in NOT_SOURCES]
    paths = [file for part in parts for file in ([part] if part.is_file() else files(part))]
    for other in COMPILED_IN.get(package, []):
        for name in ("include", "cmake"):
            paths += files(ROOT / "packages" / other / name)
    content = hashlib.sha256()
    for path in paths:
        content.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        content.update(path.read_bytes())
    return content.hexdigest()


def libc() -> list[int]:
    return [int(part) for part in (platform.libc_ver()[1] or "0").split(".")]


def fits(wheel: Path, record: dict) -> str:
    """Why a wheel cannot be used here; nothing if it can."""
    if record.get("sources") != sources(record["package"]):
        return "built from other sources"
    try:
        _, version, _, kinds = utils.parse_wheel_filename(wheel.name)
    except utils.InvalidWheelFilename as error:
        return str(error)
    text = (ROOT / "packages" / record["package"] / "pyproject.toml").read_text()
    if str(version) != tomllib.loads(text)["project"]["version"]:
        return f"version {version}"
    if not kinds & set(tags.sys_tags()):
        return f"not for Python {platform.python_version()} on {platform.machine()}"
    if "any" not in {kind.platform for kind in kinds} and record.get("libc", [99]) > libc():
        return "built on a newer C library"
    return ""


def unpack(folder: Path, into: Path) -> Path:
    """All wheels of a folder and of its tar files in one place, with one record."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    records: dict[str, dict] = {}
    pieces = sorted(folder.glob("wheels.tar.*"))
    if pieces:
        archive = io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))
        with tarfile.open(fileobj=archive) as tar:
            tar.extractall(into, filter="data")
        records = json.loads((into / RECORD).read_text())
    for path in folder.glob("*.whl"):
        shutil.copy(path, into)
    if (folder / RECORD).exists():
        records |= json.loads((folder / RECORD).read_text())
    (into / RECORD).write_text(json.dumps(records))
    return into


def choose(folder: Path) -> tuple[dict[str, Path], dict[str, str], list[Path]]:
    """Wheels that fit, by package; why others do not; and wheels that are not of this tree, to be installed beside."""
    records = json.loads((folder / RECORD).read_text())
    chosen, refused, others = {}, {}, []
    for wheel in sorted(folder.glob("*.whl")):
        record = records.get(wheel.name)
        if record:
            why = fits(wheel, record)
        elif wheel.name.startswith("rabbet"):
            why = f"{RECORD} does not name it"
        else:
            others.append(wheel)
            continue
        if why:
            refused[wheel.name] = why
        else:
            chosen[record["package"]] = wheel
    return chosen, refused, others


def build(check: Check, names: list[str], folder: Path) -> dict[str, Path]:
    """Wheels of packages that do not need each other, side by side."""
    compiled = sum((ROOT / "packages" / name / "CMakeLists.txt").exists() for name in names)
    share = str(max(2, (os.cpu_count() or 2) // (2 if compiled > 1 else 1)))
    jobs = {}
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)  # a wheel for another Python
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation"]
        command += ["--no-deps", "-w", str(folder / name), str(ROOT / "packages" / name)]
        log = check.logs / f"wheel-{name}.log"
        jobs[name] = check.start(command, log, CMAKE_BUILD_PARALLEL_LEVEL=share)
    try:
        failed = [name for name, job in jobs.items() if check.wait(job, check.left()) != 0]
    finally:
        for job in jobs.values():
            kill(job)
    if failed:
        late = f" within {check.limit:.0f} s" if not check.left() else ""
        raise Failed(f"no wheel of {', '.join(failed)}{late}: see wheel-NAME.log")
    return {name: next((folder / name).glob("*.whl")) for name in names}


def install(check: Check, made: list[Path]) -> None:
    """All at once: pip keeps a folder that is there, and several wheels have parts of `rabbet`."""
    shutil.rmtree(check.site, ignore_errors=True)
    words = ["-q", "--no-index", "--no-deps", "--no-compile", "--target", check.site]
    check.command(sys.executable, "-m", "pip", "install", *words, *made)


def build_missing(check: Check, have: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Wheels of the packages that `have` lacks, where nothing of an earlier run is installed."""
    made: dict[str, Path] = {}
    shutil.rmtree(check.site, ignore_errors=True)
    for wave in WAVES:
        missing = [name for name in wave if name not in have]
        if not missing:
            continue
        if any(name in COMPILED_IN for name in missing):
            install(check, [*have.values(), *made.values()])
        made |= build(check, missing, folder)
    return made


def record(made: dict[str, Path]) -> dict[str, dict]:
    return {
        wheel.name: {"package": name, "sources": sources(name), "libc": libc()}
        for name, wheel in made.items()
    }


def bring_home(made: dict[str, Path], out: Path) -> None:
    """Into files `wheels.tar.NN` of limited size: one archive with its record, cut in pieces."""
    if not made:
        return
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        text = json.dumps(record(made)).encode()
        entry = tarfile.TarInfo(RECORD)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
        for wheel in made.values():
            tar.add(wheel, wheel.name)
    content = archive.getvalue()
    for number, begin in enumerate(range(0, len(content), PIECE)):
        (out / f"wheels.tar.{number:02}").write_bytes(content[begin : begin + PIECE])


def wheels(check: Check) -> Result:
    """Install what was built before and fits, and build the rest."""
    if check.given_site:
        return Result("skipped", f"--site: what is installed in {check.given_site} is tested")
    chosen: dict[str, Path] = {}
    refused: dict[str, str] = {}
    others: list[Path] = []
    if check.given_wheels:
        chosen, refused, others = choose(unpack(check.given_wheels, check.work / "given"))
    folder = check.work / "wheels"
    made = build_missing(check, chosen, folder)
    install(check, [*chosen.values(), *made.values(), *others])
    status, text = check.try_command(sys.executable, "-c", SMOKE, seconds=60)
    again = [name for name in chosen if name == "core" or name in COMPILED_IN]
    if status != 0 and again:
        check.note(f"built here again: {', '.join(again)}")
        refused |= {chosen.pop(name).name: "cannot be loaded here" for name in again}
        made = build_missing(check, {**chosen, **made}, folder) | made
        install(check, [*chosen.values(), *made.values(), *others])
        status, text = check.try_command(sys.executable, "-c", SMOKE, seconds=60)
    bring_home(made, check.out)
    found = {
        "prebuilt": sorted(chosen),
        "built": {name: wheel.stat().st_size for name, wheel in made.items()},
        "not used": refused,
        "installed beside": [path.name for path in others],
    }
    if status != 0:
        return Result(
            "failed", f"what was installed cannot be loaded: {text.strip()[-500:]}", found
        )
    note = f"{len(chosen)} prebuilt, {len(made)} built"
    note += f" ({', '.join(made)})" if made else ""
    note += (
        f"; not used: {'; '.join(f'{name}: {why}' for name, why in refused.items())}"
        if refused
        else ""
    )
    return Result("passed", note, found)


def build_wheels(folder: Path) -> int:
    """On a machine without a GPU: the wheels that `folder` lacks, or has of other sources, into it."""
    folder.mkdir(parents=True, exist_ok=True)
    check = Check(folder, simulated=False)
    check.begin("build-wheels", 3600)
    chosen, refused, _ = choose(unpack(folder, check.work / "given"))
    try:
        made = build_missing(check, chosen, check.work / "wheels")
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    for name in refused:
        (folder / name).unlink(missing_ok=True)
    path = folder / RECORD
    before = json.loads(path.read_text()) if path.exists() else {}
    for wheel in made.values():
        shutil.copy(wheel, folder)
    kept = {name: entry for name, entry in before.items() if (folder / name).exists()}
    path.write_text(json.dumps(kept | record(made), indent=1) + "\n")
    print(f"{len(chosen)} wheels fit, {len(made)} built: {', '.join(made)}")
    return 0
