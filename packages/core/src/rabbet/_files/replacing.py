"""A file is replaced as a whole: readers see the old one or the new one, and so does who comes after a crash.

The new file has no name until all of it is on disk (O_TMPFILE): if the process is killed before, it vanishes. A first
file gets its name by link(2). To take the place of another, which link cannot, it is linked as `.NAME.saving0` and
renamed; a kill between these two calls leaves that name, and the next save to the path removes it. Where there is no
O_TMPFILE (other systems than Linux, NFS) the file has that name from the beginning; what a kill leaves is removed
likewise. Writers hold a lock on their file, so that nobody takes it for one that was left.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}


def is_special(path: str) -> bool:
    """Whether there is something at the path that cannot be replaced, such as a device, a pipe or a folder."""
    with contextlib.suppress(FileNotFoundError):
        return not stat.S_ISREG(os.stat(path).st_mode)
    return False


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of the one at `path` when the block ends without an error.

    A symbolic link stays, and its target is replaced. The mode and, where allowed, the owner of an existing file are
    kept; a new one gets what the umask allows.
    """
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    if before is not None:
        os.close(os.open(target, os.O_WRONLY))  # a file that may not be written is not replaced
    directory, name = os.path.split(target)
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    temporary = _Temporary(folder, name)
    try:
        fd = temporary.open()
        with os.fdopen(fd, "w+b") as file:
            if before is not None:
                _inherit(fd, before)
            yield file
            file.flush()
            os.fsync(fd)
            temporary.publish(fd)
            os.fsync(folder)
    finally:
        temporary.remove()
        os.close(folder)


def _inherit(fd: int, before: os.stat_result) -> None:
    if (os.geteuid(), os.getegid()) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


def _lock(fd: int, flags: int = 0) -> bool:
    """Whether the file is locked for us now; file systems without locks never say so."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | flags)
    except OSError:
        return False
    return True


class _Temporary:
    """The new file on its way to its name."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._target = name
        self._name: str | None = None  # what a failure has to remove

    def open(self) -> int:
        fd = self._open_unnamed()
        if fd is None:
            return self._open_named()
        _lock(fd)
        return fd

    def publish(self, fd: int) -> None:
        """Give the file its name."""
        if self._name is None:
            with contextlib.suppress(FileExistsError):
                self._link(fd, self._target)
                return
            for name in self._free_names():
                with contextlib.suppress(FileExistsError):
                    self._link(fd, name)
                    self._name = name
                    break
        assert self._name is not None
        os.rename(self._name, self._target, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._name = None

    def remove(self) -> None:
        """Remove the name that the file still has, if it was not published."""
        if self._name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._folder)

    def _open_unnamed(self) -> int | None:
        flag = getattr(os, "O_TMPFILE", None)
        if flag is None or not os.path.isdir("/proc/self/fd"):
            return None
        try:
            return os.open(".", flag | os.O_RDWR, 0o666, dir_fd=self._folder)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return None
            raise

    def _open_named(self) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
        for name in self._free_names():
            try:
                fd = os.open(name, flags, 0o666, dir_fd=self._folder)
            except FileExistsError:
                continue
            _lock(fd)  # waits for who looks at it, to find out whether it was left
            if self._is_at(fd, name):
                self._name = name
                return fd
            os.close(fd)  # it was taken for one that was left
        raise AssertionError("there is always another name")

    def _link(self, fd: int, name: str) -> None:
        # A folder's descriptor makes Python call linkat(2), which follows the link in /proc.
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._folder, follow_symlinks=True)

    def _free_names(self) -> Iterator[str]:
        """Names for the file until one can be had; what a killed process left there is removed."""
        stem = os.fsdecode(os.fsencode(self._target)[:200])
        index = 0
        while True:
            name = f".{stem}.saving{index}"
            if self._remove_left(name):
                yield name
            else:
                index += 1

    def _remove_left(self, name: str) -> bool:
        """Whether nothing has that name any more."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(name, flags, dir_fd=self._folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or not _lock(fd, fcntl.LOCK_NB):
                return False
            if self._is_at(fd, name):
                os.unlink(name, dir_fd=self._folder)
            return True
        finally:
            os.close(fd)

    def _is_at(self, fd: int, name: str) -> bool:
        """Whether the open file is the one of that name."""
        try:
            found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(fd))
