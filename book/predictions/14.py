"""What chapter 14 asks its readers to predict; see ``book/_ext/asking.py``."""

import figures
import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.core import exact
from minirlhf.data.toys import poem_critic
from minirlhf.equations import preference_losses as losses
from minirlhf.equations.preference_losses import PairLogps, UnpairedLogps
from minirlhf.feedback.proxies import minimise


def _one_pair():
    figure = figures.load("displacement")

    def walked(beta: float) -> tuple[float, float]:
        found = figure.oracle(figure.data(), {**figure.start, "beta": beta})
        no, sure = (found[name][1][-1] for name in ("chosen", "third"))
        assert abs(no + found["rejected"][1][-1] + sure - 1) < 1e-9
        return no, sure

    no, sure = walked(0.5)
    slow_no, slow_sure = walked(0.1)
    answer = "it cannot" if no > 1 / 3 else "it can, but only a little" if no > 0.1 else "it can nearly vanish"
    return answer, {"no": no, "sure": sure, "slow_no": slow_no, "slow_sure": slow_sure}


one_pair = Ask(
    "Three completions, “no”, “never” and “sure”, are equally probable. DPO takes a thousand steps on one pair, “no” over “never”. Can “no” be less probable after them than before?",
    {
        "it cannot": "With a logit for each completion you would be right. But completions can share features. The loss asks for more “no” than “never”, not for more “no” than before. If “no” is similar to “never”, both can become less probable together.",
        "it can nearly vanish": "",
        "it can, but only a little": "A step that makes “never” less probable can do the same to a similar completion (it depends on the features of the third one), and no step asks how probable “no” still is. In the example below (β = ½, gradient descent at rate .1) the probability of “no” falls from 1/3 to {no:.2f}, and the probability of “sure” rises to {sure:.2f}. With β = .1 they are {slow_no:.2f} and {slow_sure:.2f} after the same number of steps, and still moving in the same direction.",
    },
    _one_pair,
)


def _margins(up_to: float) -> torch.Tensor:
    return torch.linspace(-up_to, up_to, 20001, dtype=torch.float64)


def _smoothed():
    margins = _margins(20.0)
    zero = torch.zeros_like(margins)
    loss = losses.cdpo(PairLogps(margins, zero, zero, zero), beta=1.0, label_smoothing=0.1)
    return float(margins[loss.argmin()]), {}


smoothed = Ask(
    "cDPO assumes that each label is wrong with probability .1. At which βh is its loss of one pair smallest?",
    Typed(
        within=0.25,
        form=".2f",
        low="The model's probability of the label, σ(βh), should be .9. βh itself is the log-odds of .9, that is of 9 to 1.",
        high="With a deterministic label a larger βh is always better. Here 10 % of the loss asks for the opposite, and beyond odds of 9 to 1 its gradient is the larger one.",
    ),
    _smoothed,
)


def _told_of_noise():
    world = poem_critic()
    ref = world.reference.distribution()[0].detach()
    i, j = (~torch.eye(len(ref), dtype=torch.bool)).nonzero(as_tuple=True)
    meets = ref[i] * ref[j] * torch.sigmoid(world.rewards[i] - world.rewards[j])  # clean labels by Bradley and Terry
    zero = torch.zeros_like(meets)

    def rests(loss) -> float:
        """Return the KL from the reference of the policy that minimises the loss of all pairs."""
        # The log-ratios, but for a constant that no margin sees; the loss is convex in them.
        gains = minimise(lambda x: meets @ loss(PairLogps(x[i], x[j], zero, zero)), len(ref))
        return float(exact.divergence((ref.log() + gains).softmax(-1), ref))

    dpo = rests(lambda pair: losses.dpo(pair, beta=0.5))
    robust = rests(lambda pair: losses.robust_dpo(pair, beta=0.5, label_smoothing=0.1))
    if abs(robust - dpo) < 0.01:
        return "as far as DPO"
    return "further than DPO" if robust > dpo else "not as far as DPO"


told_of_noise = Ask(
    "There are infinitely many pairs with labels by Bradley–Terry, and none is flipped. But robust DPO assumes that 10 % are. How far from the reference does it converge?",
    {
        "further than DPO": "",
        "as far as DPO": "It would with the right fraction. Now it removes noise that is not there: a pair on which people agree in nine of ten cases or more asks, by itself, for an infinite margin.",
        "not as far as DPO": "This is what cDPO does with the number: it assumes more noise in the labels. Robust DPO removes noise from them.",
    },
    _told_of_noise,
)


def _sixty():
    ratios, zero = _margins(10.0), torch.zeros(1, dtype=torch.float64)
    loss = torch.zeros_like(ratios)
    for share, up in ((0.6, True), (0.4, False)):
        batch = UnpairedLogps(ratios, zero.expand_as(ratios), None, torch.full(ratios.shape, up))
        loss += share * losses.kto(batch, zero[0], beta=1.0)
    best = int(loss.argmin())
    if best == len(ratios) - 1:
        return "nowhere: the larger, the better"
    odds = torch.tensor(0.6, dtype=torch.float64).logit()
    return (
        "where β(ρ − z₀) is the log-odds of .6"
        if abs(ratios[best] - odds) < 0.01
        else "at z₀"
        if abs(ratios[best]) < 0.01
        else "elsewhere"
    )


sixty_up = Ask(
    "Six of ten people give a completion a thumb up, four a thumb down, and both thumbs have the same weight. At which log-ratio ρ is the mean of KTO's loss smallest, if ρ is free and z₀ fixed?",
    {
        "at z₀": "There σ is ½, and with weights of 1 the mean loss is also ½. A larger σ loses .4 for each .6 that it gains, so larger is always better.",
        "nowhere: the larger, the better": "",
        "where β(ρ − z₀) is the log-odds of .6": "This would be right with a logarithm before the σ. KTO has none: .6 · (1 − σ) + .4 · σ is a straight line in σ, and lowest at one end.",
    },
    _sixty,
)


def _ten_times():
    kl = seeds("ch14", "rate_10_kl")
    found = {
        "kl": mean("ch14", "rate_10_kl"),
        "near": min(kl),
        "far": max(kl),
        "good": mean("ch14", "dpo_gold"),
        "bad": mean("ch14", "rate_10_gold"),
        "accuracy": mean("ch14", "rate_10_accuracy"),
        "before": mean("ch14", "dpo_accuracy"),
    }
    if compared("ch14", "rate_10_accuracy", "dpo_accuracy") == "smaller":
        return ("at chance level" if found["accuracy"] < 0.55 else "lower, but above chance"), found
    return ("no lower" if found["accuracy"] >= found["before"] else "lower, if at all"), found


ten_times = Ask(
    "At ten times the chosen learning rate DPO ends {kl:.0f} nats from the reference on average ({near:.0f} to {far:.0f} across five seeds), with a gold reward of {bad:.2f} in place of {good:.2f}. How does the accuracy on its training pairs compare with the accuracy at the chosen rate?",
    {
        "no lower": "",
        "lower, but above chance": "At thirty times the rate it is lower. At ten times it is {accuracy:.2f}, at the chosen rate {before:.2f}. The loss asks for the order of the pairs, and does not look at other completions of the policy.",
        "at chance level": "Accuracy asks only which completion of a pair has the larger log-ratio. The policy's own completions, incoherent in some seeds, do not enter.",
    },
    _ten_times,
)


def _circle(home: torch.Tensor) -> tuple[float, float, float, int]:
    """Return the largest win rate of one completion against the equilibrium, its and the equilibrium's payoff, and its number."""
    circle = torch.tensor([[0.5, 0.9, 0.1], [0.1, 0.5, 0.9], [0.9, 0.1, 0.5]], dtype=torch.float64)

    def response(logps: torch.Tensor) -> torch.Tensor:
        return losses.psi_po_optimum(home.log(), circle, logps.exp(), beta=0.1, psi=lambda p: p)

    nash = home.log()
    for _ in range(150):
        nash = (0.8 * nash + 0.2 * response(nash)).log_softmax(-1)
    if not torch.allclose(response(nash), nash, atol=1e-6):
        raise ValueError("no equilibrium found")
    wins = circle @ nash.exp()
    best = int(wins.argmax())
    paid = wins + 0.1 * home.log()  # the KL of a sure answer is minus the logarithm of its probability
    return float(wins[best]), float(paid[best]), 0.5 - 0.1 * float(exact.divergence(nash.exp(), home)), best


def _unbeaten():
    wins, paid, own, best = _circle(torch.tensor([0.6, 0.25, 0.15], dtype=torch.float64))
    even, *_ = _circle(torch.full((3,), 1 / 3, dtype=torch.float64))
    found = {"wins": wins, "paid": paid, "own": own, "which": ("first", "second", "third")[best], "even": even}
    if wins <= 0.5:
        return "there is none", found
    return f"there is one, with a {'higher' if paid > own else 'lower'} payoff", found


unbeaten = Ask(
    "Three completions beat one another in a circle, each the next one nine times in ten. The reference gives them the probabilities .6, .25 and .15, and β = .1. Does one completion win more than half of its games against the equilibrium? And if so, is its payoff (win rate minus β times the KL) higher than the payoff of the equilibrium against itself?",
    {
        "there is none": "The equilibrium is the best response in payoff. In wins alone the {which} completion beats it in {wins:.2f} of the games. With equal probabilities in the reference none would: each completion would win {even:.2f} of its games.",
        "there is one, with a lower payoff": "",
        "there is one, with a higher payoff": "Then the equilibrium would not be its own best response. The completion that beats it has the payoff {paid:.2f}, the equilibrium {own:.2f} against itself.",
    },
    _unbeaten,
)
