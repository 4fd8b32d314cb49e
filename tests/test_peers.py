"""TRL's own code on the same tensors: every line of the table tells the truth, and no method of ours is missing."""

import importlib.util
import inspect
import os
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from facts import raises

if importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"):
    pytest.skip("needs the extra 'peers'", allow_module_level=True)

from minirlhf.core import exact
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed
from minirlhf.equations import (
    advantages,
    aggregation,
    difficulty,
    distillation,
    kl,
    off_policy,
    policy_losses,
    preference_losses,
    reward_losses,
    value_losses,
)
from minirlhf_cli import main
from minirlhf_course.ledger import peers
from minirlhf_course.ledger.peers.adapter import TRL_VERSION, answers, trl_dpo
from minirlhf_course.ledger.peers.catalogue import NO_PEER, PEERS, TRL_ONLY, PeerComparison
from minirlhf_course.ledger.registry import Draw

COMPARED = [p for p in PEERS if p.agree is not None]
NAMES = [f"{p.method}-{p.peer}" for p in COMPARED]


@pytest.mark.parametrize("peer", COMPARED, ids=NAMES)
def test_peers_measure_agrees_or_shows_its_convention(peer, suite_seed):
    """Agreement to 1e-6 in value and gradient; where a convention differs, it shows as soon as the switch is off."""
    rows = [peers.measure(peer, seed) for seed in drawn(suite_seed)]
    for row in rows:
        assert row.error <= peers.TOLERANCE == 1e-6, row
        assert (row.verdict == "differs") == (row.difference is not None)
    clearest = max(
        rows, key=lambda row: row.difference or 0.0
    )  # one draw in thousands lies beyond every bound of a loss
    if clearest.difference is not None:
        assert clearest.difference >= peers.VISIBLE, clearest
        assert clearest.convention
    assert clearest.holds


def drawn(suite_seed):
    """Seeds of three draws."""
    return [derive_seed("peers", suite_seed, i) % 2**31 for i in range(3)]


@pytest.mark.parametrize("peer", COMPARED, ids=NAMES)
def test_peers_comparison_depends_on_what_is_compared(peer, suite_seed):
    """The loss depends on what is compared: its gradient is not 0 in some draw. Advantages and weights are data and have none."""
    made = [peer.agree(Draw(seed, peer.method)) for seed in drawn(suite_seed)]
    assert max(float(ours.detach().abs().max()) for _, ours, _ in made) > 0
    if made[0].leaf.requires_grad:
        assert max(float(exact.gradient(theirs.sum(), leaf).abs().max()) for leaf, _, theirs in made) > 1e-6
    else:
        assert peer.method in {p.method for p in PEERS if p.peer.startswith(("GRPOTrainer", "RLOOTrainer"))}


def functions(module, *first):
    """Public functions of a module whose first parameters have these names."""
    return [
        name
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if f.__module__ == module.__name__
        and not name.startswith("_")
        and list(inspect.signature(f).parameters)[: len(first)] == list(first)
    ]


def test_peers_catalogue_has_every_method():
    """Objectives, advantages, aggregation, reward, value and distillation losses, KL estimators."""
    methods = set(functions(policy_losses, "logps", "old_logps", "advantages"))
    methods |= set(functions(advantages, "rewards", "valid")) - {"valid_mask"}
    methods |= {"remax", "process_zscore", "whiten"}
    methods |= set(functions(difficulty, "rewards", "valid")) - {"nonzero_variance_groups", "pass_rate_weighting"}
    methods |= set(functions(aggregation, "mask")) | {"high_entropy_weights", "wpo"}
    methods |= {n for n in dir(reward_losses) if n.endswith(("_loss", "_penalty"))}
    methods |= set(functions(value_losses, "values"))
    methods |= set(functions(distillation))
    methods |= set(functions(kl, "logps", "ref_logps")) & {"k1", "k2", "k3"}
    methods |= set(functions(off_policy))
    assert methods - {p.method for p in PEERS} == set()


def test_peers_catalogue_names_existing_methods():
    modules = [
        advantages, aggregation, difficulty, distillation, kl, off_policy, policy_losses, preference_losses,
        reward_losses, value_losses,
    ]  # fmt: skip
    unknown = {p.method for p in PEERS if not any(hasattr(m, p.method) for m in modules)}
    assert unknown == set()
    assert set(NO_PEER) & {p.method for p in COMPARED} == set()


def test_peers_catalogue_accounts_for_every_loss_type_of_trl():
    """Its own error message lists them."""
    with pytest.raises(ValueError) as refused:
        trl_dpo(answers(Draw(0)), "no such loss", beta=0.1)
    loss_types = set(re.findall(r"'(\w+)'", str(refused.value)))
    assert len(loss_types) > 10
    compared = {
        name.strip() for p in COMPARED if p.peer.startswith("DPOTrainer") for name in p.peer.split(" ", 1)[1].split(",")
    }
    alone = {name for line in TRL_ONLY for name in re.findall(r"\w+", line)}
    assert loss_types - compared - alone == set()


def test_peers_error_of_sees_values_and_gradients():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert peers.error_of(PeerComparison(x, x * 2, x * 2 + 1e-5)) == pytest.approx(0.5e-5, rel=1e-4)
    assert peers.error_of(PeerComparison(x, x * 2, x.detach() + x)) == 1.0  # same value, another gradient
    assert peers.error_of(PeerComparison(x, x**2 * 100, x**2 * 100 + 1)) == pytest.approx(1 / 101)
    with pytest.raises(ValueError):
        peers.error_of(PeerComparison(x, x, x * torch.nan))
    with pytest.raises(ValueError):
        peers.error_of(PeerComparison(x, x, x.sum()))


def test_verify_peers_prints_every_comparison(capsys):
    assert main(["verify", "--peers"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert TRL_VERSION in out
    assert len(lines) == len(PEERS) + 4
    assert sum(line.startswith("✓") for line in lines) == len(COMPARED)
    assert any("cal_dpo" in line for line in lines)
    assert "✗" not in out


def test_peers_without_trl_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    with raises(UserError, argument="trl", problem="missing"):
        peers.rows()


def test_peers_with_another_trl_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(__version__="0.19.1"))
    with raises(UserError, argument="trl", value="0.19.1", expected=TRL_VERSION):
        peers.rows()
