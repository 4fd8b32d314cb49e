"""What chapter 09 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed

from minirlhf.data.toys import poem_critic
from minirlhf.equations import kl, regularisation, reward_losses, rlhf

POEM = poem_critic()
REF = POEM.reference.distribution()[0].detach().log()


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _far():
    near, (biases, far) = kl.gaussian_estimators(_number(0.1))[1], kl.gaussian_estimators(_number(2.0))
    names = ("k1", "k2", "k3")
    found = {f"far{n}": x for n, x in zip(names, far.tolist(), strict=True)}
    found |= {f"near{n}": x for n, x in zip(names, near.tolist(), strict=True)}
    assert found["neark3"] < found["neark1"] and found["fark1"] < min(found["fark2"], found["fark3"])
    return names[int(far.argmin())], found | {"bias": float(biases[1])}


two_nats_away = Ask(
    "The two Gaussians stand δ = 2 apart, a KL of δ²/2 = 2 nats. Which estimate has the least noise there?",
    {
        "k1": "",
        "k2": "In units of the KL its deviation is {fark2:.2f}, and it has a bias of {bias:.0f} besides; the deviation of k1 is {fark1:.0f}.",
        "k3": "Near the reference it has far less noise than k1: {neark3:.2f} in place of {neark1:.0f}, in units of the KL, at δ = .1. At δ = 2 its ratio q is now and then huge, and its deviation is {fark3:.2f} where that of k1 is {fark1:.0f}.",
    },
    _far,
)


def _forward():
    rest = {
        "reverse": rlhf.optimal_logps(REF, POEM.rewards, beta=1.0),
        "forward": regularisation.forward_kl_optimal_logps(REF, POEM.rewards, beta=1.0),
    }
    far = {name: float(kl.reverse_kl(logps, REF)) for name, logps in rest.items()}
    times = far["forward"] / far["reverse"]
    if 1.25 < times < 4:
        raise ValueError(f"{times} times as far is what no choice says")
    answer = "nearer" if times < 0.8 else "about as near" if times < 4 else "many times as far away"
    best = int(POEM.rewards.argmax())
    return answer, far | {
        "rare": float(REF[best].exp()),
        "said": float(rest["forward"][best].exp()),
        "grown": float(rest["reverse"][best].exp()),
    }


forward_on_the_poem = Ask(
    "On the three replies the forward KL leaves the policy nearer to the reference than the reverse KL does. On the poem's forty, with β = 1 again, the reverse KL leaves it {reverse:.3f} nats away. How far away does the forward KL leave it, both distances measured by the reverse KL?",
    {
        "nearer": "So it was where the reference itself gives the best reply half of the time. Here it gives the best reply with a probability of {rare:.3f}: the forward KL charges no more for saying it {said:.2f} of the time than the others lose by it.",
        "about as near": "Near each other the two divergences agree. Here only one of them stays near: under the reverse KL, at β = 1, the best reply grows from {rare:.3f} to {grown:.3f} and stays rare; the forward KL asks only what is left for the others, and the best reply grows to {said:.2f}.",
        "many times as far away": "",
    },
    _forward,
)


def _copies():
    logps = REF
    for _ in range(5):  # the optimum, four copies, and an optimum after each
        logps = rlhf.optimal_logps(logps, POEM.rewards, beta=0.5)
    beta = rlhf.beta_for_kl(REF, POEM.rewards, budget=float(kl.reverse_kl(logps, REF)))
    assert torch.allclose(logps, rlhf.optimal_logps(REF, POEM.rewards, beta=beta), atol=1e-6)
    return beta, {"halved": 0.5 / 2**4, "copies": 0.5 / 4}


four_copies = Ask(
    "A run at β = ½ goes to its optimum and copies the policy into the reference, four times, and then goes to the optimum once more. With which β would it be there at once, from the first reference?",
    Typed(
        within=0.015,
        low="{halved:.2f} is ½ halved at each copy. But each optimum adds the same r/β to the log-probabilities, whatever the reference is: that is a sum, and no power.",
        high="{copies:.3f} counts the copies only; the optimum after the last copy is the fifth. And ½ would be so if the reference did not carry with it what was gained before.",
    ),
    _copies,
)


def _margin():
    def pushes(gap: float, margin: float) -> tuple[float, float]:
        """Of the nine, outwards, and of the tenth, inwards."""
        x = torch.full((1,), gap, dtype=torch.float64, requires_grad=True)
        none, asked = torch.zeros_like(x), torch.full_like(x, margin).detach()
        ours = 0.9 * reward_losses.bradley_terry_loss(x, none, margin=asked).sum()
        theirs = 0.1 * reward_losses.bradley_terry_loss(none, x, margin=asked).sum()
        return -float(torch.autograd.grad(ours, x)[0]), float(torch.autograd.grad(theirs, x)[0])

    def rest(margin: float) -> float:
        low, high = 0.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            outwards, inwards = pushes(middle, margin)
            low, high = (middle, high) if outwards > inwards else (low, middle)
        return low

    plain, asked = rest(0.0), rest(1.0)
    if abs(asked - plain) < 0.05:
        answer = "where it was"
    elif asked < plain:
        answer = "below it"
    elif abs(asked - plain - 1) < 0.05:
        answer = "above it by 1"
    else:
        assert asked < plain + 1
        answer = "above it by less than 1"
    found = {"plain": plain, "asked": asked, "shifted": plain + 1}
    for name, margin in (("old", 0.0), ("new", 1.0)):  # what either side's pairs push with at the old rest
        outwards, inwards = pushes(plain, margin)
        found |= {f"nine_{name}": outwards, f"tenth_{name}": inwards}
    return answer, found


margin_of_one = Ask(
    "Nine of ten annotators prefer one reply, p = .9. Without a margin the difference rests at {plain:.3f}. Where does it rest with a margin of 1 on both sides' pairs?",
    {
        "below it": "The margin stands in the loss, but with it every pair pushes harder, also one that lies beyond it. At {plain:.3f} the nine's push, outwards, grows from {nine_old:.3f} to {nine_new:.3f}, and the tenth's, inwards, from {tenth_old:.3f} to {tenth_new:.3f} only; the rest is at {asked:.3f}.",
        "where it was": "So it would be if both pushes grew alike. But at {plain:.3f} the tenth pushes nearly as hard as it ever can, {tenth_old:.3f} of at most .1, and with the margin {tenth_new:.3f}; the nine's push grows from {nine_old:.3f} to {nine_new:.3f}.",
        "above it by 1": "So it would be if all pairs asked for the margin in one direction. The tenth annotator's pairs ask for it the other way round: at {shifted:.3f} they push harder than those of the nine.",
        "above it by less than 1": "",
    },
    _margin,
)
