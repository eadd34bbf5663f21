"""What a run leaves under $OUT: few files of limited size, all in one folder."""

import io
import json
import tarfile
from pathlib import Path

MOST_FILES = 8
MOST_BYTES = 16 << 20  # of a file
MOST_FOLDERS = 2
LOG_BYTES = 2 << 20  # of a log: its beginning and its end
EVENTS = (".events", ".done")  # between processes; their contents are in the summary


def write(out: Path, head: dict, rows: dict[str, dict]) -> None:
    """summary.json with everything, table.md for readers."""
    (out / "summary.json").write_text(json.dumps({**head, "stages": rows}, indent=1) + "\n")
    lines = [f"Run {head['run']}, {head['seconds']} s, seed {head['seed']}", ""]
    lines += ["| stage | status | s | of | what |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        note = " ".join(row["note"].replace("|", "/").split())
        lines.append(f"| {name} | {row['status']} | {row['seconds']} | {row['limit']} | {note} |")
    if head["simulated"]:
        lines += ["", "On the simulator: no time here is a GPU's."]
    (out / "table.md").write_text("\n".join(lines) + "\n")


def shortened(content: bytes) -> bytes:
    if len(content) <= LOG_BYTES:
        return content
    half = LOG_BYTES // 2
    left = f"\n... {len(content) - 2 * half} bytes left out ...\n".encode()
    return content[:half] + left + content[-half:]


def pack(logs: Path, out: Path) -> None:
    """All logs in one file."""
    with tarfile.open(out / "logs.tar.gz", "w:gz") as tar:
        for path in sorted(logs.iterdir()):
            if path.is_file() and path.suffix not in EVENTS:
                content = shortened(path.read_bytes())
                entry = tarfile.TarInfo(path.name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def beyond_limits(out: Path) -> list[str]:
    """What of a folder would not be brought back."""
    files = [path for path in out.rglob("*") if path.is_file()]
    found = [] if len(files) <= MOST_FILES else [f"{len(files)} files, at most {MOST_FILES}"]
    for path in files:
        name = path.relative_to(out)
        if path.stat().st_size > MOST_BYTES:
            found.append(f"{name} has {path.stat().st_size} bytes, at most {MOST_BYTES}")
        if len(name.parts) - 1 > MOST_FOLDERS:
            found.append(f"{name} lies deeper than {MOST_FOLDERS} folders")
    return found
