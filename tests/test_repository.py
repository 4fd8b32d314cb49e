"""What belongs into the repository, and that its lists of packages agree with one another."""

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from minirlhf.core import provenance
from minirlhf.core.equation import Equation
from minirlhf_course.chapters import load_checks
from minirlhf_course.ledger import pages as reader

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def repository_files() -> list[Path]:
    """Every file that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [f for f in files if f.is_file()]


# -- files -------------------------------------------------------------------------------------------------------


def test_repository_has_no_file_larger_than_a_megabyte():
    assert [f for f in repository_files() if f.stat().st_size > 2**20] == []


def test_repository_has_no_weights():
    weights = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npz", ".gguf", ".onnx"}
    assert [f for f in repository_files() if f.suffix in weights] == []


def test_repository_has_no_path_of_a_home_folder():
    home = re.compile(r"/(?:root|home|Users)/\w")
    found = []
    for file in repository_files():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image
        found += [f"{file.relative_to(ROOT)}: {line.strip()[:100]}" for line in text.splitlines() if home.search(line)]
    assert found == []


def test_notebooks_committed_are_executed():
    """The output checks of nbval pass over a notebook without execution counts."""
    notebooks = [f for f in repository_files() if f.suffix == ".ipynb" and f.parts[len(ROOT.parts)] == "notebooks"]
    if not notebooks:
        pytest.skip("no notebooks yet")
    for file in notebooks:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
        assert code, f"{file.name} has no code"
        assert all(c["execution_count"] for c in code), f"{file.name} was not executed"
        for cell in code:
            checked = "nbval-check-output" in cell["metadata"].get("tags", [])
            assert cell["outputs"] or not checked, f"{file.name}: nothing to check"


def test_ci_run_is_executable_and_parses():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"]).returncode == 0


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    assert sorted(re.findall(r"^  make (\S+)", listed, re.MULTILINE)) == sorted(phony.group(1).split())


# -- packages ----------------------------------------------------------------------------------------------------


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    for line in pinned:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), f"constraints.txt: {line!r} is not name==version"
    assert max(Counter(line.split("==")[0] for line in pinned).values()) == 1
    return dict(line.split("==") for line in pinned)


def pin_tool():
    spec = importlib.util.spec_from_file_location("pin", ROOT / "tools" / "pin.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_constraints_pin_every_requirement_within_its_range():
    pinned = pins()
    for requirement in pin_tool().declared():
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_constraints_pin_everything_that_is_installed_with_it():
    tool = pin_tool()
    assert tool.closure(tool.declared()).keys() - pins().keys() == set()


def test_constraints_are_the_installed_versions():
    tool = pin_tool()
    pinned = pins()
    for name, version in tool.closure(tool.declared()).items():
        assert version == pinned[name], f"{name} {version} is installed, {pinned[name]} is pinned: run `make setup`"


def test_pyproject_extra_all_names_every_extra():
    extras = PYPROJECT["project"]["optional-dependencies"]
    [requirement] = map(Requirement, extras["all"])
    assert requirement.name == PYPROJECT["project"]["name"]
    assert requirement.extras == extras.keys() - {"all", *pin_tool().NOT_INSTALLED}


def test_environment_yml_installs_what_is_tested():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, section = environment["dependencies"]
    name, version = python.split("=")
    assert (name, pip) == ("python", "pip")
    assert version in Requirement(f"python{PYPROJECT['project']['requires-python']}").specifier
    assert section == {"pip": ["-c constraints.txt", "-e .[all]"]}
    assert environment["name"] == PYPROJECT["project"]["name"]


def test_citation_names_version_and_licence_of_pyproject():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what the format requires"
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    project = PYPROJECT["project"]
    assert (citation["version"], citation["license"], citation["abstract"]) == tuple(
        project[name] for name in ("version", "license", "description")
    )


def test_devcontainer_sets_up_what_is_tested():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    tag = container["image"].rpartition(":")[2]
    assert Version(tag) >= Version(PYPROJECT["project"]["requires-python"].removeprefix(">="))
    assert container["postCreateCommand"].startswith("make setup ")
    assert container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"].endswith(
        "/.venv/bin/python"
    )


def test_version_is_that_of_pyproject_and_metadata():
    import minirlhf

    assert Version(minirlhf.__version__) == Version(PYPROJECT["project"]["version"])
    assert minirlhf.__version__ == metadata.version("minirlhf")


# -- equations and their docstrings ------------------------------------------------------------------------------


def equation_layer() -> dict[str, ast.Module]:
    """The syntax tree of each module of the equation layer."""
    names = [name for name in provenance.all_modules() if name.startswith("minirlhf.equations")]
    return {name: ast.parse(provenance.module_path(name).read_text(encoding="utf-8")) for name in names}


def public_functions(tree: ast.Module) -> dict[str, str]:
    """The docstrings of the public functions of a module."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    return {f.name: ast.get_docstring(f) or "" for f in functions}


def test_equations_have_docstring_label_and_source():
    """A public function without a label is no equation: it must be a part of one, used inside the layer."""
    layer = equation_layer()
    nodes = [node for tree in layer.values() for node in ast.walk(tree)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    wrong = []
    for module, tree in layer.items():
        for name, docstring in public_functions(tree).items():
            facts = Equation.of(getattr(importlib.import_module(module), name))
            if not docstring or (facts.labels and not facts.source) or (not facts.labels and name not in used):
                wrong.append(f"{module}.{name}")
    assert wrong == [], f"no label or no source in `@equation`: {wrong}"


def test_equations_labels_have_one_home():
    shared = {label: [f.__name__ for f in homes] for label, homes in reader.homes().items() if len(homes) > 1}
    assert shared == {}


def test_equations_labels_are_checked_by_the_ledger():
    unproved = {
        label: homes[0].__name__ for label, homes in reader.homes().items() if label not in load_checks().labels()
    }
    assert unproved == {}, f"labels without a check: {unproved}"


def test_ledger_labels_are_equations_or_steps_of_derivations():
    ledger = load_checks()
    steps = {label for chain in ledger.chains.values() for label in chain.labels}
    homeless = [label for label in ledger.labels() if label not in reader.homes() and label not in steps]
    assert homeless == [], f"no function and no derivation has these labels: {homeless}"
