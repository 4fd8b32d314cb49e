"""Set up ``.venv``: create it, install the pinned packages, mark it complete. Does nothing when that has been done.

Every make target runs this first. The mark is written last and holds the folder and a hash of what was installed from, so a
killed set-up starts over, changed requirements or pins update in place, and a moved folder is set up anew.
Runs on Python 3.6, in order to say which one it needs.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
MARK = VENV / ".complete"
NEEDED = (3, 11)


def wanted():
    """What a complete set-up of this folder writes into its mark."""
    import tomllib  # new in the Python that is needed

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    del settings["tool"]  # lint and test settings are read where they stand
    packages = json.dumps(settings) + (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return f"{ROOT}\n{hashlib.sha256(packages.encode()).hexdigest()}\n"


def found():
    """The mark of an earlier set-up, empty if there is none or its interpreter is gone."""
    usable = MARK.is_file() and os.access(str(VENV / "bin" / "python"), os.X_OK)
    return MARK.read_text(encoding="utf-8") if usable else ""


def pip(*arguments):
    """Run pip inside the environment; stop with its output if it fails."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
    if subprocess.call(command + quiet + list(arguments), cwd=str(ROOT)) != 0:
        sys.exit("minirlhf: pip could not install the packages (see above); the next make starts over")


def main():
    if sys.version_info < NEEDED:
        sys.exit(
            f"minirlhf needs Python {NEEDED[0]}.{NEEDED[1]} or newer; {sys.executable} is "
            f"{sys.version_info[0]}.{sys.version_info[1]}. Name another one: make setup PYTHON=python3.12"
        )
    lock = os.open(str(ROOT), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once: the second waits, then finds the work done
    have = found()
    if have == wanted():
        return
    start = time.time()
    if have.startswith(f"{ROOT}\n"):
        print("minirlhf: packages changed, updating .venv")
        MARK.unlink()
    else:
        print("minirlhf: setting up .venv (once; a few minutes)", flush=True)
        if subprocess.call([sys.executable, "-m", "venv", "--clear", str(VENV)]) != 0:
            sys.exit(f"minirlhf: {sys.executable} could not create .venv (see above)")
    pip("-c", "constraints.txt", "pip", "setuptools")
    pip("-c", "constraints.txt", "--no-build-isolation", "-e", ".[all]", *os.environ.get("TORCH_ARGS", "").split())
    # pip would compile on one core; a file that is not meant for this Python is no failure. Where PYTHONDONTWRITEBYTECODE is set, every
    # process would compile our own packages again.
    folders = map(str, (VENV / "lib", *ROOT.glob("minirlhf*/")))
    subprocess.call([str(VENV / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0", *folders])
    subprocess.check_call([str(VENV / "bin" / "python"), "-c", "import minirlhf, torch"])
    MARK.write_text(wanted(), encoding="utf-8")
    print(f"minirlhf: .venv is ready after {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
