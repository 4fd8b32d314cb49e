"""Derivations in the notation that people write: it is read, what is false still gets a counterexample, and an unknown sign
is answered with the nearest known one."""

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_course.ledger.formulas import derivation, derivation_names
from minirlhf_course.ledger.formulas.spellings import spelled

SEED = 20261129
OBJECTIVE = r"\mathcal{J}(\theta) = \mathbb{E}_{x\sim\mathcal{D}, y\sim\pi_\theta(\cdot|x)}[r(x,y)]"


def verdicts(tmp_path, *formulas):
    path = tmp_path / "mine.md"
    path.write_text("".join(f"$$\n{formula}\n$$ (step-{k})\n\n" for k, formula in enumerate(formulas)))
    _, steps = derivation.read(path)
    found = derivation_names.check([step.as_data() for step in steps], SEED)
    derivation.report(path, steps, found, SEED)  # raises where a formula cannot be read
    return found


TRUE = [
    r"\sum_{y \in \mathcal{Y}} \pi_\theta(y \mid x) = 1",
    r"\mathbb{E}_{y \sim \pi_\theta(\cdot \mid x)}\left[\nabla_\theta \log \pi_\theta(y \mid x)\right] = 0",
    r"\mathbb E_{y\sim\pi_{\theta}}[\nabla_{\theta}\log\pi_{\theta}(y|x)] = 0",
    r"\nabla_\theta \mathbb{E}_{\pi_\theta}[r(x, y)] = \mathbb{E}_{y\sim\pi_\theta(y|x)}[r(x,y)\,\nabla_\theta\log\pi_\theta(y|x)]",
    r"D_{KL}(\pi_\theta \| \pi_{ref}) = \mathbb{E}_{y\sim\pi_\theta}\left[\log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}\right]",
    r"D_{\mathrm{KL}}\left(\pi_\theta(\cdot|x)\,\|\,\pi_{\text{ref}}(\cdot|x)\right) \ge 0",
    r"\mathbb{D}_{\text{KL}}\left[\pi_\theta(y|x) \,||\, \pi_{\mathrm{ref}}(y|x)\right] \geq 0",
    r"\text{KL}(\pi_\theta \parallel \pi_0) = \sum_y \pi_\theta(y|x) \log \frac{\pi_\theta(y|x)}{\pi_0(y|x)}",
    r"\pi^*(y\mid x) = \frac{1}{Z(x)}\,\pi_{\mathrm{ref}}(y \mid x)\exp\!\left(\frac{1}{\beta} r(x,y)\right)",
    r"\pi^{\star}(y|x) = \frac{\pi_{ref}(y|x)\, e^{r(x,y)/\beta}}{\sum_{y'} \pi_{ref}(y'|x)\, e^{r(x,y')/\beta}}",
    r"\pi_r(y|x) = \frac{1}{Z(x)} \pi_{\text{SFT}}(y|x) \exp(r_\phi(x,y)/\beta)",
    r"Z(x) = \mathbb{E}_{y\sim\pi_{ref}(\cdot|x)}[\exp(r(x,y)/\beta)]",
    r"r(x,y) = \beta\log\frac{\pi^*(y|x)}{\pi_{ref}(y|x)} + \beta\log Z(x)",
    r"\mathbb{E}_{y\sim\pi^*}[r(x,y)] - \beta D_{KL}(\pi^* \| \pi_{ref}) = \beta \log Z(x)",
    r"\mathbb{E}_{y \sim \pi_{\theta_{\text{old}}}}\left[\frac{\pi_\theta(y|x)}{\pi_{\theta_{\text{old}}}(y|x)} r(x,y)\right] = \mathbb{E}_{y\sim\pi_\theta}[r(x,y)]",
    r"\begin{align} \nabla_\theta \mathbb{E}_{y\sim\pi_\theta}[r(x,y)] &= \sum_y r(x,y)\,\nabla_\theta\pi_\theta(y|x) \\ &= \sum_y r(x,y)\,\pi_\theta(y|x)\nabla_\theta\log\pi_\theta(y|x) \end{align}",
    r"\boldsymbol{\pi}_\theta(y|x) := \exp(\log \pi_\theta(y|x)) \tag{1}",
]


@pytest.mark.parametrize("formula", TRUE)
def test_derivation_in_common_notation_is_read_and_holds(formula, tmp_path):
    [verdict] = verdicts(tmp_path, formula)
    assert verdict["holds"] and not verdict["defines"] and verdict["error"] < 1e-12


@pytest.mark.parametrize(
    "formula",
    [
        r"\pi^*(y|x) = \frac{1}{Z(x)}\pi_{ref}(y|x)\exp(\beta\, r(x,y))",
        r"r(x,y) = \beta\log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)} + \beta\log Z(x)",
        r"\mathbb{E}_{y\sim\pi_{ref}}[\nabla_\theta\log\pi_\theta(y|x)] = 0",
        r"D_{KL}(\pi_\theta\|\pi_{ref}) = D_{KL}(\pi_{ref}\|\pi_\theta)",
    ],
)
def test_derivation_that_is_false_gets_a_counterexample_in_common_notation(formula, tmp_path):
    [verdict] = verdicts(tmp_path, formula)
    assert not verdict["holds"] and verdict["counterexample"]["left"] != verdict["counterexample"]["right"]


@pytest.mark.parametrize("name", [r"\mathcal{J}(\theta)", r"J(\pi_\theta)", r"\mathcal L", r"J"])
def test_derivation_defines_an_objective_that_later_steps_use(name, tmp_path):
    right = r"\mathbb{E}_{y\sim\pi_\theta}\left[r(x,y)\,\nabla_\theta\log\pi_\theta(y\mid x)\right]"
    objective = rf"{name} = \mathbb{{E}}_{{x\sim\mathcal{{D}},\,y\sim\pi_\theta(\cdot|x)}}[r(x,y)]"
    first, true = verdicts(tmp_path, objective, rf"\nabla_\theta {name} = {right}")
    assert first["defines"] and true["holds"] and not true["defines"]
    _, false = verdicts(tmp_path, objective, rf"\nabla_\theta {name} = 2\, {right}")
    assert not false["holds"]


def test_derivation_defines_a_function_of_the_completion(tmp_path):
    advantage = r"A(x,y) = r(x,y) - \mathbb{E}_{y'\sim\pi_\theta}[r(x,y')]"
    first, second = verdicts(tmp_path, advantage, r"\mathbb{E}_{y\sim\pi_\theta(\cdot|x)}[A(x,y)] = 0")
    assert first["defines"] and second["holds"]


@pytest.mark.parametrize(
    ("formula", "near"),
    [
        (r"\mathbb{E}_{y\sim\pi_\theta}[\bata\, r(x,y)] = 0", r"\beta"),
        (r"\mathbb{E}_{y\sim\pi_\theta}[\lgo \pi_\theta(y|x)] = 0", r"\log"),
        (r"\mathbb{E}_{y\sim\pi_\theta}[r_2(x,y)] = 0", "r"),
    ],
)
def test_derivation_answers_an_unknown_sign_with_the_nearest(formula, near, tmp_path):
    with raises(UserError, argument="formula", expected=near):
        verdicts(tmp_path, formula)


def test_spelled_leaves_the_signs_of_the_book_as_they_are():
    for formula in (
        r"\nabla J = \E_\pi\big[r\, \nabla\log\pi\big]",
        r"\E_\pi[r] = 0",
        r"\pi(y) \ge \piref(y')",
        r"\|r\| |y|",
    ):
        assert "".join(spelled(formula).split()) == "".join(formula.split())
