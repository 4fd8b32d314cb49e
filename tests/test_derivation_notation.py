"""Derivations in the notation that people write: it is read, what is false still gets a counterexample, and an unknown sign
is answered with the nearest known one."""

from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_cli import main
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
        r"\hat{A}_t = \delta_t + \gamma \hat{A}_{t+1}",
        r"V^\pi(s) = \max_a Q^\pi(s,a)",
        r"p(y_w \succ y_l \mid x) = \sigma(r(x,y_l) - r(x,y_w))",
        r"\mathrm{std}(\mathbf{r})^2 = \frac{1}{G}\sum_{i=1}^G (r_i - \mathrm{mean}(\mathbf{r}))^2",
        r"\mathrm{KL}(\pi_{\mathrm{bon}}\|\pi_{\mathrm{ref}}) \ge \log n",
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


SAMPLES = Path(__file__).parent / "samples/derivations"
#: Which of the forty and the twenty are refused: a gradient of an undefined J, a sample and its tokens in one formula, a maximum over policies, an undefined target.
REFUSED = {"forty.md": {"28-policy-gradient-theorem", "39-gspo-ratio"}, "twenty.md": {"13-opt-value", "18-ppo-value"}}
#: Equates a KL divergence with its estimate of one token.
FALSE = {"24-k3"}


def outcomes(step, tmp_path):
    """The verdict on one step alone; None where it is refused."""
    path = tmp_path / "mine.md"
    path.write_text(f"$$\n{step.latex}\n$$ (one)\n")
    _, steps = derivation.read(path)
    [found] = derivation_names.check([step.as_data() for step in steps], SEED)
    return None if "broken" in found else found


@pytest.mark.parametrize("sample", sorted(REFUSED))
def test_derivation_sample_is_read(sample, tmp_path):
    _, steps = derivation.read(SAMPLES / sample)
    found = {step.label: outcomes(step, tmp_path) for step in steps}
    assert len(found) == {"forty.md": 40, "twenty.md": 20}[sample]
    assert {label for label, verdict in found.items() if verdict is None} == REFUSED[sample]
    assert {label for label, verdict in found.items() if verdict and not verdict["holds"]} <= FALSE


def test_derivation_sample_notices_misprints_of_what_it_compares(tmp_path):
    """What is compared does not hold whatever is printed."""
    found = [outcomes(step, tmp_path) for sample in sorted(REFUSED) for step in derivation.read(SAMPLES / sample)[1]]
    compared = [verdict for verdict in found if verdict and verdict["holds"] and not verdict["defines"]]
    assert len(compared) > 30
    assert all(len(verdict["missed"]) < verdict["misprints"] for verdict in compared)


def test_derivation_of_a_definition_alone_is_not_counted_as_compared(tmp_path):
    path = tmp_path / "mine.md"
    path.write_text("$$\nh = 1\n$$ (one)\n")
    _, steps = derivation.read(path)
    [found] = derivation_names.check([step.as_data() for step in steps], SEED)
    assert found["unused"] and not derivation.passed(found)
    assert main(["verify", str(path)]) == 1


def test_derivation_may_define_a_number_that_is_known(tmp_path):
    [verdict] = verdicts(
        tmp_path,
        r"\mathbb{E}_{y\sim\pi_\theta}[r(x,y) \nabla_\theta\log\pi_\theta(y|x)] = \mathbb{E}_{y\sim\pi_\theta}[(r(x,y) - b) \nabla_\theta\log\pi_\theta(y|x)], \quad b = 3",
    )
    assert verdict["holds"]


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
