"""What six typical edits and three exchanges of names make stale: ``python tools/stale_studies.py`` (some minutes: every edit runs the probes that it could move).

Each edit is made in a copy of the working tree. ``imported`` counts the studies whose code, or code that it imports, is another text
then, as a hash of it would say; ``stale`` those that ``minirlhf verify studies`` names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDLE = "\n\ndef nobody_calls_this(x):\n    return x + 1\n"

CH01 = "minirlhf_course/chapters/ch01_introduction/study.py"
CH20 = "minirlhf_course/chapters/ch20_overoptimization/study_language.py"

#: what is done -> (file, pattern, replacement), at the first match of every pattern
EDITS: dict[str, list[tuple[str, str, str]]] = {
    "nothing": [],
    "core.errors: another wording": [("minirlhf/core/errors.py", r"did you mean", "is it")],
    "aggregation: a docstring": [("minirlhf/equations/aggregation.py", r'"""', '"""New words. ')],
    "equations: a function is renamed": [],
    "an uncalled function is added": [("minirlhf/equations/aggregation.py", r"\Z", IDLE)],
    "the sign of DPO's loss": [
        ("minirlhf/equations/preference_losses/pairs.py", r"(def dpo\(.*?return )(bradley)", r"\1-\2")
    ],
    "a mask is dropped": [
        ("minirlhf/equations/aggregation.py", r"(def token_mean\(.*?\n    \"\"\".*?\"\"\"\n)", r"\1    mask = mask | True\n")
    ],
    "ch01: another trainer": [
        (CH01, r"SFTConfig, train_sft\n", r"SFTConfig\nfrom minirlhf.trainers.reward import train_reward\n"),
        (CH01, r"train_sft\(tuned", r"train_reward(tuned"),
    ],
    "ch01: two facets are exchanged": [(CH01, r"in \(content, manners\)", "in (manners, content)")],
    "ch20: another ensemble": [
        (CH20, r"import worst_case", "import uncertainty_weighted, worst_case"),
        (CH20, r"curve\(worst_case\(", "curve(uncertainty_weighted("),
    ],
}  # fmt: skip

# In a process of its own, in the copy: names of studies whose imports have changed, then of those that are stale.
LOOK = """
import json, sys
from minirlhf_course.evidence import study
found = study.discover()
print(json.dumps({name: script._everything({}) for name, script in found.items()}))
for name, script in found.items():
    print(name, "|", "; ".join(script.stale()))
"""


def rename(copy: Path) -> None:
    """``token_mean`` is ``mean_over_tokens`` everywhere."""
    for path in copy.glob("minirlhf*/**/*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"\btoken_mean\b", "mean_over_tokens", text), encoding="utf-8")


def look(copy: Path, cache: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Study -> hash of all that it imports, and study -> why it is stale."""
    import json

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOK],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "MINIRLHF_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    first, *rest = done.stdout.splitlines()
    return json.loads(first), dict(line.split(" | ", 1) for line in rest)


def main() -> None:
    """Make every edit and print the table."""
    before: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, edits in EDITS.items():
            copy = Path(folder) / "copy"
            for package in ROOT.glob("minirlhf*/"):
                shutil.copytree(package, copy / package.name, ignore=shutil.ignore_patterns("__pycache__"))
            for file, pattern, new in edits:
                path = copy / file
                text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
                assert count == 1, (file, pattern)
                path.write_text(text, encoding="utf-8")
            if "renamed" in name:
                rename(copy)
            hashes, stale = look(copy, Path(folder) / "cache")
            before = before or hashes
            imported = sum(hashes[study] != before[study] for study in hashes)
            why = {study: reasons for study, reasons in stale.items() if reasons}
            print(f"{name:36} imported {imported:2} stale {len(why):2} of {len(hashes)}", flush=True)
            for study, reasons in why.items():
                print(f"    {study}: {reasons[:150]}", flush=True)
            shutil.rmtree(copy)


if __name__ == "__main__":
    main()
