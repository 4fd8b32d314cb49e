"""Write constraints.txt: the exact version of every package that ``.[all]`` brings, as installed in this environment.

Run it in an environment whose tests pass. Packages that exist on other platforms only stay unpinned.
"""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# The versions that the tests run with: everything `pip install -e .[all]` brings on Linux. Written by tools/pin.py.
"""


#: Extras that the tests do without, so that no version of them is pinned: a module in their place is tested.
NOT_INSTALLED = ("wandb",)


def declared() -> list[Requirement]:
    """Every requirement that pyproject.toml names, to build, to run, and of each extra; and pip, which installs them."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    lines = ["pip", *content["build-system"]["requires"], *project["dependencies"]]
    for name, extra in project["optional-dependencies"].items():
        lines += extra if name not in NOT_INSTALLED else []
    requirements = [Requirement(line) for line in lines]
    return [r for r in requirements if r.name != project["name"]]


def closure(roots: list[Requirement]) -> dict[str, str]:
    """These packages and all that they need here: normalised name -> installed version, without local suffix."""
    versions: dict[str, str] = {}
    queue = [(canonicalize_name(r.name), frozenset(r.extras)) for r in roots]
    seen = set()
    while queue:
        name, extras = queue.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        package = metadata.distribution(name)
        versions[name] = Version(package.version).public
        for needed in map(Requirement, package.requires or []):
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras | {""}):
                queue.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return versions


def render() -> str:
    """The content of constraints.txt for this environment."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(closure(declared()).items()))


if __name__ == "__main__":
    (ROOT / "constraints.txt").write_text(render(), encoding="utf-8")
