"""Packages of npm that the book and its tests use: pinned, fetched once, and kept in folders that git ignores."""

import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A version of a package, the digest that npm names for it, and what is taken from it: files and folders."""

    name: str
    version: str
    sha512: str
    files: tuple[str, ...]

    @property
    def archive(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.version}.tgz"


MATHJAX = Package(
    "mathjax",
    "3.2.2",
    "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
    ("package/es5/tex-chtml-full.js", "package/es5/output/chtml/fonts/woff-v2/", "package/LICENSE"),
)
AXE = Package(
    "axe-core",
    "4.12.1",
    "s7iGf5GaVMxEG0ENN9x+xTr7GFZCb1ZP/1uATUpCEK2X78nDB3RwbtFCo9pGAf9ru+VwoQ464DkaLEeRM08wJA==",
    ("package/axe.min.js", "package/LICENSE"),
)


def fetch(package: Package) -> bytes:
    """The package as npm serves it, through npm if it is there (it knows a mirror), otherwise from the registry."""
    if shutil.which("npm"):
        with tempfile.TemporaryDirectory() as folder:
            command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            return (Path(folder) / package.archive).read_bytes()
    with urllib.request.urlopen(f"https://registry.npmjs.org/{package.name}/-/{package.archive}") as response:
        return response.read()


def vendor(package: Package, target: Path) -> None:
    """Put what is taken of a package into a folder, once."""
    if (target / "LICENSE").is_file():
        return
    archive = fetch(package)
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != package.sha512:
        sys.exit(f"book: {package.archive} is not the file that was pinned; nothing was installed")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        taken = [m for m in opened if m.isfile() and m.name.startswith(package.files)]
        for member in sorted(
            taken, key=lambda m: m.name.endswith("/LICENSE")
        ):  # written last: it says that all is there
            path = target / member.name.removeprefix("package/").removeprefix("es5/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(opened.extractfile(member).read())
