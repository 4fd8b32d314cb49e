"""The box in which a submission runs: namespaces, an unprivileged user, limits. Linux kernel calls through ctypes.

There are four levels. The best level that the system allows is determined by trying:

* ``namespaces`` (root): a read-only file system that contains only Python, its packages and one small folder in
  memory; no network; no other process is visible; user ``nobody``.
* ``user-namespaces`` (an ordinary user on most Linux systems): the same, made with the user's own rights.
* ``user`` (root, but namespaces are forbidden, as in many containers): user ``nobody``. It can read all files that
  ``nobody`` may read.
* ``limits`` (everything else): a separate process with limits, but with the rights of the grading user.

All levels limit CPU and wall time, memory, file sizes, and starting processes or threads. On Linux the kernel also
refuses system calls that no answer needs (namespaces, mounts, tracing, sockets, keys, and others). :func:`probe` tests
inside the box what it keeps out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import pwd
import resource
import shutil
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ANSWERS_HIDDEN, GRADER_HIDDEN = "exercise sources out of reach", "grader out of reach"  # required for grading
LEVELS = ("namespaces", "user-namespaces", "user", "limits")
BOX = Path("/box")
BOX_BYTES = 64 << 20

# Linux constants, from the kernel's public headers.
NEW_MOUNT, NEW_HOST, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (1 << n for n in (17, 26, 27, 28, 29, 30))
READ_ONLY, NO_SUID, NO_DEVICES, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
DETACH = 2
SET_DEATH_SIGNAL, SET_DUMPABLE, SET_SECURE_BITS, SET_NO_NEW_PRIVILEGES = 1, 4, 28, 38
NO_ROOT_LOCKED = 3
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CAPABILITY_VERSION_3 = 0x20080522

# A filter of system calls: the kernel's id of the machine, and the numbers of the refused calls.
SET_FILTER = 22
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000  # REFUSE: with EPERM
FORBIDDEN = {
    "x86_64": (
        0xC000003E,
        (
            *(101, 310, 311),  # ptrace, process_vm_readv, process_vm_writev
            *(272, 308, 165, 166, 155, 161, 428, 429, 430, 432, 442),  # unshare, setns, mounts, chroot
            *(248, 249, 250, 298, 321, 323, 425, 426, 427),  # keys, perf_event_open, bpf, userfaultfd, io_uring
            *(175, 313, 176, 246, 320, 169, 167, 168),  # modules, kexec, reboot, swap
            *(29, 30, 31, 67, 64, 65, 66, 68, 69, 70, 71, 240),  # System V memory, semaphores, messages; POSIX queues
            *(41, 53, 435),  # socket, socketpair, clone3
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(117, 270, 271),
            *(97, 268, 40, 39, 41, 51, 428, 429, 430, 432, 442),
            *(217, 218, 219, 241, 280, 282, 425, 426, 427),
            *(105, 273, 106, 104, 294, 142, 224, 225),
            *(194, 195, 196, 197, 190, 191, 192, 193, 186, 187, 188, 189, 180),
            *(198, 199, 435),
        ),
    ),
}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source: str, target: Path, kind: str | None, flags: int, options: str = "") -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, str(target), kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), os.fsencode(options))


def unprivileged_ids() -> tuple[int, int]:
    """User and group id of ``nobody``."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return entry.pw_uid, entry.pw_gid


# -- entering a level, once per server ---------------------------------------------------------------------------


def _works(attempt: Callable[[], object]) -> bool:
    """Return whether ``attempt`` raises nothing; a child process runs it, so that a partial attempt has no effect."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _own_namespaces() -> None:
    if platform.machine() not in PIVOT_ROOT:
        raise OSError("no pivot_root number for this machine")
    _call("unshare", NEW_MOUNT | NEW_HOST | NEW_IPC | NEW_NET)
    _forbid_shared_memory()
    _mount("none", Path("/"), None, RECURSIVE | PRIVATE)


def _own_user_namespace() -> None:
    if platform.machine() not in PIVOT_ROOT:
        raise OSError("no pivot_root number for this machine")
    outside_user, outside_group = os.geteuid(), os.getegid()
    _call("unshare", NEW_USER | NEW_MOUNT | NEW_HOST | NEW_IPC | NEW_NET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {outside_user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {outside_group} 1")
    with contextlib.suppress(OSError):  # kernels before 6.9 allow this only to root
        _forbid_shared_memory()
    _mount("none", Path("/"), None, RECURSIVE | PRIVATE)


def _forbid_shared_memory() -> None:
    """Forbid System V memory and messages in this IPC namespace: no limit counts them, and they outlive processes."""
    for name in ("shmall", "msgmni"):
        Path("/proc/sys/kernel", name).write_text("0")


def _become_nobody() -> None:
    user, group = unprivileged_ids()
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def enter(hidden: Sequence[Path], at_most: str = LEVELS[0]) -> str:
    """Enter the best level that works, at most ``at_most``, and return it; call it before threads exist."""
    allowed = LEVELS[LEVELS.index(at_most) :]
    linux, root = sys.platform == "linux", os.geteuid() == 0
    for level, step, possible in (
        ("namespaces", _own_namespaces, linux and root),
        ("user-namespaces", _own_user_namespace, linux and not root),
    ):
        if possible and level in allowed and _works(functools.partial(_rehearse, step, level, hidden)):
            step()
            return level
    if root and "user" in allowed and _works(_become_nobody):
        return "user"
    return "limits"


def _rehearse(step: Callable[[], None], level: str, hidden: Sequence[Path]) -> None:
    step()
    build_view(hidden)
    drop(level, open_box(level), 10, 1 << 40, 1 << 20)


def isolated(level: str) -> bool:
    """Return whether the level has its own file system."""
    return level in ("namespaces", "user-namespaces")


def python_folders() -> list[Path]:
    """Folders that Python must read: its libraries, packages and shared libraries, but not this package's source."""
    paths = [Path(p) for p in (sys.base_prefix, sys.prefix)]
    folders = [Path("/lib"), Path("/lib64"), Path("/usr/lib"), *(p / "lib" for p in paths)]
    folders += [Path(sysconfig.get_path("stdlib")), *(Path(p) for p in sys.path if p)]
    selected: list[Path] = []
    for folder in folders:
        checkout = (folder / "minirlhf").is_dir() and folder.name not in ("site-packages", "dist-packages")
        inside = any(folder.is_relative_to(other) and not other.is_symlink() for other in selected)
        if folder.is_dir() and not checkout and not inside:
            selected.append(folder)
    return selected


def build_view(hidden: Sequence[Path]) -> None:
    """Build this process's file system: :func:`python_folders` read-only, ``/dev/null``, ``/dev/urandom`` and ``/box``.

    Empty folders cover the folders in ``hidden`` that lie inside these. It needs its own mount namespace.
    """
    root = Path("/sys")  # any folder that certainly exists; only this process sees what is mounted here
    os.umask(0o022)
    _mount("none", root, "tmpfs", NO_SUID | NO_DEVICES, "size=1m,mode=0755")
    for folder in python_folders():
        target = root / folder.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():
            target.symlink_to(folder.readlink())
            continue
        target.mkdir(exist_ok=True)
        _bind_read_only(folder, target)
        for covered in hidden:
            if covered.is_relative_to(folder) and covered.is_dir():
                _mount("none", root / covered.relative_to("/"), "tmpfs", READ_ONLY | NO_SUID | NO_DEVICES, "mode=0555")
    (root / "dev").mkdir()
    for name in ("dev/null", "dev/urandom"):
        (root / name).touch()
        _mount(f"/{name}", root / name, None, BIND)
    (root / "box").mkdir()
    os.chdir(root)
    _call("syscall", ctypes.c_long(PIVOT_ROOT[platform.machine()]), b".", b".")
    _call("umount2", b".", DETACH)  # the old root, which is now mounted over the new one
    os.chdir("/")
    _mount("none", Path("/"), None, REMOUNT | BIND | READ_ONLY | NO_SUID | NO_DEVICES)


def _bind_read_only(folder: Path, target: Path) -> None:
    _mount(str(folder), target, None, BIND | RECURSIVE)
    # A mount from outside keeps its flags; the kernel refuses to remove them here.
    flags = os.statvfs(target).f_flag & (NO_SUID | NO_DEVICES | 8 | 1024 | 2048)
    _mount("none", target, None, REMOUNT | BIND | READ_ONLY | NO_SUID | flags)


# -- one box per submission --------------------------------------------------------------------------------------


def open_box(level: str) -> Path:
    """Make a new, empty folder for one submission; processes forked after this call see no other boxes."""
    user, group = (
        (0, 0) if level == "user-namespaces" else unprivileged_ids()
    )  # 0 is what one's own id is called in there
    if isolated(level):
        _call("unshare", NEW_MOUNT | NEW_PID)
        _mount(
            "none",
            BOX,
            "tmpfs",
            NO_SUID | NO_DEVICES,
            f"size={BOX_BYTES},nr_inodes=4k,mode=0700,uid={user},gid={group}",
        )
        return BOX
    box = Path(tempfile.mkdtemp(prefix="minirlhf-box-"))
    if level == "user":
        os.chown(box, user, group)
    return box


def close_box(level: str, box: Path) -> None:
    """Remove the box. A box in memory disappears with its last process."""
    if not isolated(level):
        shutil.rmtree(box, ignore_errors=True)


def forbid_calls() -> bool:
    """Permanently refuse system calls that no answer needs and that have been used to attack kernels.

    With a kernel filter (seccomp), the calls in :data:`FORBIDDEN` fail with EPERM and all others are allowed. Return
    whether the system supports this.
    """
    machine = platform.machine()
    if machine not in FORBIDDEN or sys.platform != "linux":
        return False
    audit, numbers = FORBIDDEN[machine]
    load, equal, ret = 0x20, 0x15, 0x06  # BPF: load a word, jump if equal, return
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), (ret, 0, 0, KILL), (load, 0, 0, 0)]
    if machine == "x86_64":  # calls with its second numbering (x32)
        steps += [(0x35, 0, 1, 1 << 30), (ret, 0, 0, REFUSE)]
    for number in numbers:
        steps += [(equal, 0, 1, number), (ret, 0, 0, REFUSE)]
    steps.append((ret, 0, 0, ALLOW))
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(header, len(header))
    try:
        _call("prctl", ctypes.c_ulong(SET_FILTER), ctypes.c_ulong(2), ctypes.byref(pointer), 0, 0)
    except OSError:
        return False
    return True


def drop(level: str, box: Path, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
    """Give up all rights and set the limits, just before the submission runs."""
    os.chdir(box)
    for name, value in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard_limit = resource.getrlimit(name)[1]
        value = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        resource.setrlimit(name, (value, value))
    if level in ("namespaces", "user"):
        _become_nobody()
    elif level == "user-namespaces":
        _call("prctl", SET_SECURE_BITS, ctypes.c_ulong(NO_ROOT_LOCKED), 0, 0, 0)  # or exec would restore the rights
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        _call("capset", header, (ctypes.c_uint32 * 6)())
    if sys.platform == "linux":
        for option, value in ((SET_DEATH_SIGNAL, signal.SIGKILL), (SET_DUMPABLE, 0), (SET_NO_NEW_PRIVILEGES, 1)):
            _call("prctl", option, ctypes.c_ulong(value), 0, 0, 0)
        forbid_calls()


# -- testing it --------------------------------------------------------------------------------------------------


def probe(level: str, secrets: Sequence[str], grader: int) -> dict[str, bool]:
    """Test from inside the box what it keeps out: True where the attempt failed.

    Args:
        level: the level of the box; only root can run a submission as a separate user.
        secrets: files and folders that a submission must not read.
        grader: process id of the grader.
    """

    def fails(attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except OSError:
            return True
        return False

    def fork() -> None:
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def connect() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("192.0.2.1", 9))  # a documentation address (RFC 5737); nothing is sent

    def separate() -> None:
        ctypes.set_errno(0)
        if _libc.unshare(NEW_HOST) != 0:
            raise OSError(ctypes.get_errno(), "unshare")

    def read(path: str) -> object:
        return os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes()

    return {
        "a user without rights": level in ("namespaces", "user") and os.geteuid() == unprivileged_ids()[0],
        ANSWERS_HIDDEN: all(fails(functools.partial(read, path)) for path in secrets),
        GRADER_HIDDEN: fails(lambda: os.kill(grader, 0)),
        "no network": fails(connect),
        "no new processes": fails(fork),
        "no new namespaces": fails(separate),
    }
