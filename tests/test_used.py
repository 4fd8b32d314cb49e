"""Every public function below the chapters and commands is there for somebody: a chapter, a command, a table, or a claim.

Tests do not count. What a chapter that is still to come needs of the library, and nothing else uses yet, stands in its
manifest: ``claims = ["minirlhf.models.turns.sample_turns", ...]``; what its checks prove counts as claimed too.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

import minirlhf
from minirlhf.core import provenance
from minirlhf_course.chapters import chapters

ROOT = Path(__file__).resolve().parent.parent
# Who may use them: these, and all that lives outside the packages but the tests.
UPPER = (*(f"minirlhf_course.{room}" for room in ("chapters", "classroom", "tour")), "minirlhf_cli.commands")
OUTSIDE = ("book", "notebooks", "exercises", "tools", "benchmarks", "examples")


class Module:
    """What one file defines at its top level, what it imports, and what each of its statements refers to."""

    def __init__(self, name, path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.name = name
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.definitions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        self.names = {local: f"{name}.{local}" for local in self.definitions}
        self._chains = {}
        for statement in tree.body:
            chains = self._chains[statement] = set()
            for node in ast.walk(statement):
                if isinstance(node, ast.ImportFrom):
                    base = ".".join(filter(None, [package if node.level else "", node.module or ""]))
                    self.names |= {a.asname or a.name: f"{base}.{a.name}" for a in node.names}
                elif isinstance(node, ast.Import):
                    self.names |= {a.asname or a.name.partition(".")[0]: a.name for a in node.names if a.asname}
                elif isinstance(node, ast.Name | ast.Attribute):
                    chains.add(_chain(node))

    def references(self, but=()):
        """Dotted names that all statements but these refer to, as far as imports tell."""
        return set().union(*(self.referred(statement) for statement in self._chains if statement not in but))

    def referred(self, statement):
        """Dotted names that one statement refers to."""
        return {".".join([self.names.get(head, head), *rest]) for head, *rest in self._chains[statement] if head}


def _chain(node):
    """``a.b.c`` as ``("a", "b", "c")``; ``("",)`` for an attribute of anything but a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ("",)


class Library:
    """All modules of the package, and which definition a dotted name means."""

    def __init__(self):
        self.modules = {name: Module(name, provenance.module_path(name)) for name in provenance.all_modules()}
        self.lower = {name: m for name, m in self.modules.items() if not name.startswith(UPPER)}

    @functools.cache  # noqa: B019
    def resolve(self, name):
        """``package.reexported.attribute`` as ``module.definition``; None for what is no definition of ours."""
        head = name
        while head and head not in self.modules:
            head = head.rpartition(".")[0]
        first = name.removeprefix(f"{head}.").partition(".")[0]
        if not head or name == head:
            return None
        if first in self.modules[head].definitions:
            return f"{head}.{first}"
        target = self.modules[head].names.get(first, name)
        return None if target == name else self.resolve(target)

    def resolved(self, names):
        return {found for found in map(self.resolve, names) if found}

    def outside(self):
        """What ``import minirlhf`` gives, and what files beyond the package refer to: Python by its imports, text by dotted names or
        by names in code."""
        found = self.resolved(f"{home}.{name}" for name, home in minirlhf._HOME_OF.items())
        by_name = {}
        for module in self.modules.values():
            for name in module.definitions:
                by_name.setdefault(name, set()).add(f"{module.name}.{name}")
        for folder in OUTSIDE:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix == ".py":
                    outside = Module(path.stem, path)
                    found |= self.resolved(outside.references())
                elif path.suffix == ".md":
                    text = path.read_text(encoding="utf-8")
                    found |= self.resolved(re.findall(r"minirlhf(?:_course|_cli)?(?:\.\w+)+", text))
                    for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL):
                        found.update(*(by_name.get(word, ()) for word in re.findall(r"[A-Za-z_]\w+", code)))
        return found

    def of_one_chapter(self):
        """Public functions of the library's equations that only the modules of one chapter refer to, with the chapter's number."""
        used = {name: {"outside"} for name in self.outside()}
        for name, module in self.modules.items():
            where = re.sub(r"^minirlhf_course\.chapters\.(ch\d\d).*", r"\1", name)
            for statement in module._chains:
                inside = f"{name}.{getattr(statement, 'name', '')}"
                for found in self.resolved(module.referred(statement)) - {inside}:
                    used.setdefault(found, set()).add(where if where != name else inside)
        equations = {name for name in used if name.startswith("minirlhf.equations.")}
        for _ in range(5):  # an equation that uses another is used where the first is
            for name in equations:
                used[name] = {
                    place for user in used[name] for place in (used.get(user, {user}) if user in equations else {user})
                }
        return {
            name.removeprefix("minirlhf.equations."): where
            for name in equations
            for where in used[name]
            if len(used[name]) == 1 and re.fullmatch(r"ch\d\d", where) and not name.rpartition(".")[2].startswith("_")
        }

    def unused(self, claims=()):
        """Public functions below UPPER that nothing but tests leads to."""
        frontier = self.outside() | set(claims)
        for name, module in self.modules.items():
            inside = set(module.definitions.values()) if name in self.lower else set()
            frontier |= self.resolved(module.references(but=inside))
        reached = set()
        while frontier:
            name = frontier.pop()
            reached.add(name)
            module, _, local = name.rpartition(".")
            definition = self.modules[module].definitions[local]
            frontier |= self.resolved(self.modules[module].referred(definition)) - reached
        return {
            f"{name}.{local}"
            for name, module in self.lower.items()
            for local, node in module.definitions.items()
            if isinstance(node, ast.FunctionDef) and not local.startswith("_") and f"{name}.{local}" not in reached
        }


#: Equations that only one chapter uses and that stay in the library, beside others with which they share a helper or a derivation.
BESIDE_OTHERS = {
    *(
        "diagnostics.clip_fraction",
        "distillation.soft_cross_entropy",
        "evaluation.wald_interval",
        "tuning.packed_floor",
    ),
    *("kl.f_divergence", "kl.f_chi_squared", "kl.f_total_variation", "kl.full_kl_with_score"),
    *("mdp.bellman_q_expectation", "mdp.bellman_q_optimality", "reward_losses.max_entropy_irl_loss"),
    *(f"preference_losses.pairs.{name}" for name in ("preference_probability", "reward_of_optimum")),
    *(f"preference_losses.psi_po.{name}" for name in ("ipo_target", "psi_po_objective")),
    *("preference_losses.lists.ranking_probability", "style.length_controlled_probability"),
    *("returns.gae_mixture", "returns.gae_sum", "returns.n_step_from_residuals"),
    *(f"trust_region.{name}" for name in ("performance_difference", "quadratic_kl", "surrogate_gain")),
}


@pytest.mark.slow
def test_equations_of_one_chapter_live_with_it():
    alone = Library().of_one_chapter()
    moves = [f"{name} belongs to {where}" for name, where in alone.items() if name not in BESIDE_OTHERS]
    assert sorted(moves) == [], "move these into the chapter's equations.py"
    assert sorted(BESIDE_OTHERS - alone.keys()) == [], "these are used elsewhere too: no exception is needed"


@pytest.mark.slow
def test_public_functions_are_used_or_claimed_and_claims_are_needed():
    claimed = {claim: chapter for chapter in chapters() for claim in chapter.claims}
    library = Library()
    assert sorted(library.unused(claimed)) == [], "used by nothing but tests: claim them, or remove them"
    assert sorted(claimed.keys() - library.unused()) == [], "claims of what is used already, or is no public function"
    assert [c.name for c in claimed.values() if c.finished] == [], "a finished chapter has nothing left to claim"
