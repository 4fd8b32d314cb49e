"""The cheat sheet has every loss of the book, each as its chapter prints it, on two printed sides."""

import inspect
import sys
from pathlib import Path

from facts import raises

from minirlhf_course.chapters import load_checks
from minirlhf_course.ledger import pages

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.insert(0, str(BOOK / "_ext"))

from cheat_sheet import printed, sections  # noqa: E402

LOSSES = ("policy_losses", "preference_losses", "reward_losses", "value_losses", "distillation")
#: Numbered formulas that such a module's functions prove and that are no losses: models of choice, identities, gradients, optima, examples.
NOT_LOSSES = {f"eq:{name}" for name in (
    *("plackett-luce", "plackett-luce-two", "bradley-terry", "thurstone", "mallows", "elo-expected", "elo-update"),
    *("reward-shift", "max-entropy-irl", "pair-weights", "calibration-error", "value-clip", "entropy-gradient"),
    *("clipped-surrogate", "policy-ratio", "ppo-clip-gradient", "ppo-first-step", "ppo-no-clip", "gspo-gradient"),
    *("dpo-reparameterisation", "dpo-cancellation", "dpo-likelihood", "dpo-gradient", "dpo-displacement", "ches"),
    *("aot-quantiles", "psi-reward", "psi-po", "psi-po-optimum", "psi-logit", "ipo-target", "preference-nash", "nash-md"),
    *("f-prime-chi-po", "f-prime-reverse-kl", "f-prime-forward-kl", "f-prime-jensen-shannon", "f-prime-alpha"),
    *("pl-dpo-cancellation", "pl-dpo-pair", "reward-targets", "exo-pair", "nca-pair", "kto-reference-point"),
    *("bco-delta", "bco-bound", "kd-top-k-gap"),
)}  # fmt: skip


def sheet():
    text = (BOOK / "cheat-sheet.md").read_text(encoding="utf-8")
    return sections(text.split("```{cheat-sheet}\n")[1].split("```")[0].splitlines())


def test_cheat_sheet_holds_every_loss():
    ledger, found = load_checks(), {label for labels in sheet().values() for label in labels}
    modules = {
        label: {
            f.__module__
            for f in map(inspect.unwrap, pages.implementations(ledger.select([label])))
            if inspect.isfunction(f)
        }
        for label in printed(BOOK)
    }
    losses = {
        label
        for label, names in modules.items()
        if any(name.split(".")[2] in LOSSES for name in names if name.startswith("minirlhf.equations."))
    }
    assert losses - found == NOT_LOSSES, "put a new loss on book/cheat-sheet.md, or say here that it is none"


def test_cheat_sheet_sections_refuse_duplicate_and_headless_label():
    assert sections(["A: x y", "    z"]) == {"A": ["eq:x", "eq:y", "eq:z"]}
    with raises(ValueError, value="x", problem="duplicate"):
        sections(["A: x", "B: x"])
    with raises(ValueError, value="x y", problem="no heading"):
        sections(["x y"])
