"""save() to a path: one whole file or the old one, whoever writes at the same time and whenever it is killed."""

import contextlib
import errno
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import rabbet


@pytest.fixture(params=["unnamed", "named"], autouse=True)
def way(request, monkeypatch):
    """Both ways to write: with O_TMPFILE and, as on other systems, without."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no O_TMPFILE")
    return request.param


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


# ---- links and modes


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link, far = tmp_path / "folder" / "real", tmp_path / "link", tmp_path / "far"
    link.symlink_to("folder/real")
    far.symlink_to(link)
    for value in (1, 2):  # the first save makes the target
        rabbet.save(value, far)
        assert far.is_symlink() and link.is_symlink() and not target.is_symlink()
        assert rabbet.load(target) == rabbet.load(link) == value
    assert names(tmp_path) == ["far", "folder", "link"] and names(tmp_path / "folder") == ["real"]


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError) as caught:
        rabbet.save(1, tmp_path / "a")
    assert caught.value.errno == errno.ELOOP and names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("mask,expected", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_gets_what_the_umask_allows(mask, expected, tmp_path):
    with umask(mask):
        rabbet.save(1, tmp_path / "x")
    assert mode(tmp_path / "x") == expected


@pytest.mark.parametrize("before", [0o640, 0o777, 0o604])
def test_the_mode_of_an_existing_file_is_kept(before, tmp_path):
    rabbet.save(1, tmp_path / "x")
    (tmp_path / "x").chmod(before)
    with umask(0o077):
        rabbet.save(2, tmp_path / "x")
    assert mode(tmp_path / "x") == before and rabbet.load(tmp_path / "x") == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_an_existing_file_is_kept_by_root(tmp_path):
    rabbet.save(1, tmp_path / "x")
    os.chown(tmp_path / "x", 65534, 65534)
    rabbet.save(2, tmp_path / "x")
    found = (tmp_path / "x").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65534) and rabbet.load(tmp_path / "x") == 2


def test_a_file_that_may_not_be_written_is_not_replaced():
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o777)
        rabbet.save(1, folder / "x")
        (folder / "x").chmod(0o444)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                rabbet.save(2, folder / "x")
        finally:
            if root:
                os.seteuid(0)
        assert rabbet.load(folder / "x") == 1 and names(folder) == ["x"]
    finally:
        shutil.rmtree(folder)


# ---- paths


def test_paths_of_all_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("x", b"y", Path("z"), "u" * 255):
        for value in (1, 2):
            rabbet.save(value, path)
            assert rabbet.load(path) == value
    assert names(tmp_path) == ["u" * 255, "x", "y", "z"]


def test_folders_and_missing_folders_raise_what_open_raises(tmp_path):
    with pytest.raises(IsADirectoryError):
        rabbet.save(1, tmp_path)
    with pytest.raises(FileNotFoundError):
        rabbet.save(1, tmp_path / "none" / "x")
    assert names(tmp_path) == []


def test_a_pipe_is_written_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(rabbet.load(pipe)["x"].tolist()))
    reader.start()
    rabbet.save({"x": rabbet.ones(3)}, pipe)
    reader.join()
    assert got == [[1, 1, 1]] and stat.S_ISFIFO(pipe.stat().st_mode)


# ---- failures


def test_an_error_while_writing_leaves_the_old_file_alone(tmp_path, monkeypatch):
    rabbet.save(1, tmp_path / "x")
    for name in ("fsync", "rename"):
        with monkeypatch.context() as patched, pytest.raises(OSError, match="no more room"):
            patched.setattr(
                os, name, lambda *a, **k: (_ for _ in ()).throw(OSError("no more room"))
            )
            rabbet.save(2, tmp_path / "x")
        assert rabbet.load(tmp_path / "x") == 1 and names(tmp_path) == ["x"]


def test_what_cannot_be_stored_makes_no_file(tmp_path):
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError), match="pickle"):
        rabbet.save(lambda: None, tmp_path / "x")
    assert names(tmp_path) == []


KILLED = """
import os, signal, sys, rabbet
path, way, call = sys.argv[1:]
if way == "named":
    del os.O_TMPFILE
def die(*args, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)
if call == "write":
    rabbet.serialization.header.encode = lambda *args: bytes(1 << 20) if args[2:] else die()
    rabbet.serialization.memory.snapshot = lambda t: die()
else:
    setattr(os, call, die)
rabbet.save({"x": rabbet.zeros(1000)}, path)
"""


@pytest.mark.parametrize("there", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("call", ["write", "fsync", "link", "rename"])
def test_a_kill_leaves_the_old_file_and_at_most_what_the_next_save_removes(
    call, there, way, tmp_path
):
    path = tmp_path / "x"
    if there:
        rabbet.save(1, path)
    arguments = [sys.executable, "-c", KILLED, str(path), way, call]
    done = subprocess.run(arguments, capture_output=True, text=True)
    reached = {
        "write": True,
        "fsync": True,
        "link": way == "unnamed",
        "rename": way == "named" or there,
    }
    assert done.returncode == (-signal.SIGKILL if reached[call] else 0), done.stderr
    if reached[call]:
        left = [".x.saving0"] if way == "named" or call == "rename" else []
        assert names(tmp_path) == left + ["x"] * there
        assert not there or rabbet.load(path) == 1
    for value in (2, 3):
        rabbet.save(value, path)
        assert rabbet.load(path) == value and names(tmp_path) == ["x"]


BUSY = """
import itertools, sys, rabbet
for i in itertools.count():
    rabbet.save({"x": rabbet.full((200_000,), i)}, sys.argv[1])
    if not i:
        print("saved", flush=True)
"""


def test_kills_at_any_time_leave_a_whole_file(tmp_path, way):
    path = tmp_path / "x"
    code = ("import os; del os.O_TMPFILE\n" if way == "named" else "") + BUSY
    for wait in (0.0, 0.003, 0.007, 0.02):
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as p:
            p.stdout.readline()
            threading.Event().wait(wait)
            p.kill()
        x = rabbet.load(path)["x"]
        assert x.shape == (200_000,) and (x == x[0]).all()
    rabbet.save(1, path)
    assert names(tmp_path) == ["x"]


# ---- several writers


def test_threads_that_save_to_one_path_all_succeed(tmp_path):
    path, failures = tmp_path / "x", []
    rabbet.save({"x": rabbet.zeros(50_000)}, path)
    stop = threading.Event()

    def write(number):
        try:
            for _ in range(20):
                rabbet.save({"x": rabbet.full((50_000,), number)}, path)
        except BaseException as error:
            failures.append(error)

    def read():
        try:
            while not stop.is_set():
                x = rabbet.load(path)["x"]
                assert (x == x[0]).all()
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not failures and names(tmp_path) == ["x"]


SOME = """
import os, sys, rabbet
if sys.argv[2] == "named":
    del os.O_TMPFILE
for i in range(60):
    rabbet.save({"x": rabbet.full((20_000,), i)}, sys.argv[1])
"""


def test_processes_that_save_to_one_path_all_succeed(tmp_path, way):
    path = tmp_path / "x"
    running = [
        subprocess.Popen([sys.executable, "-c", SOME, str(path), way], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in running:
        assert process.communicate()[1] == b"" and process.returncode == 0
    x = rabbet.load(path)["x"]
    assert x.shape == (20_000,) and (x == 59).all() and names(tmp_path) == ["x"]


def test_what_others_left_in_the_way_is_not_touched(tmp_path):
    (tmp_path / ".x.saving0").mkdir()
    (tmp_path / ".x.saving1").symlink_to("elsewhere")
    for value in (1, 2):
        rabbet.save(value, tmp_path / "x")
    assert names(tmp_path) == [".x.saving0", ".x.saving1", "x"] and rabbet.load(tmp_path / "x") == 2
