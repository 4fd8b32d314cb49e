"""What chapter 09 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed

from minirlhf.data.toys import poem_critic
from minirlhf.equations import kl, reward_losses, rlhf
from minirlhf_course.chapters.ch09_regularisation import equations as ch09

POEM = poem_critic()
REF = POEM.reference.distribution()[0].detach().log()


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _far():
    near, (biases, far) = ch09.gaussian_estimators(_number(0.1))[1], ch09.gaussian_estimators(_number(2.0))
    names = ("k1", "k2", "k3")
    found = {f"far{n}": x for n, x in zip(names, far.tolist(), strict=True)}
    found |= {f"near{n}": x for n, x in zip(names, near.tolist(), strict=True)}
    assert found["neark3"] < found["neark1"] and found["fark1"] < min(found["fark2"], found["fark3"])
    return names[int(far.argmin())], found | {"bias": float(biases[1])}


two_nats_away = Ask(
    "The two Gaussians are δ = 2 apart, a KL of δ²/2 = 2 nats. Which estimate has the smallest standard deviation there?",
    {
        "k1": "",
        "k2": "In units of the KL its standard deviation is {fark2:.2f}, and it also has a bias of {bias:.0f}. The standard deviation of k1 is {fark1:.0f}.",
        "k3": "Near the reference its standard deviation is far smaller than k1's: {neark3:.2f} instead of {neark1:.0f}, in units of the KL, at δ = .1. At δ = 2 its ratio q is sometimes huge. Its standard deviation is {fark3:.2f}, and k1's is {fark1:.0f}.",
    },
    _far,
)


def _forward():
    rest = {
        "reverse": rlhf.optimal_logps(REF, POEM.rewards, beta=1.0),
        "forward": ch09.forward_kl_optimal_logps(REF, POEM.rewards, beta=1.0),
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
    "On the three completions, the policy stays nearer to the reference with the forward KL than with the reverse KL. On the poem's forty, again with β = 1, the reverse KL leads to a distance of {reverse:.3f} nats. Which distance does the forward KL lead to? Both distances are measured by the reverse KL.",
    {
        "nearer": "This was so where the reference itself writes the best completion half of the time. Here it does so with a probability of {rare:.3f}. The forward KL penalises a probability of {said:.2f} only by what the other completions lose.",
        "about as near": "Near each other the two divergences agree. Here only one policy stays near. With the reverse KL at β = 1, the probability of the best completion grows from {rare:.3f} to {grown:.3f} and stays small. The forward KL depends only on what is left for the others, and the probability grows to {said:.2f}.",
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
    "A run at β = ½ converges to its optimum and copies the policy into the reference. It does this four times, and then converges to the optimum once more. Which β leads to the same policy in one step, from the initial reference?",
    Typed(
        within=0.015,
        low="{halved:.2f} is ½ halved at each copy. But each optimum adds the same r/β to the log-probabilities, for any reference: this is a sum, not a power.",
        high="{copies:.3f} counts the copies only, and the optimum after the last copy is the fifth. The answer ½ would ignore that the reference already contains the earlier gains.",
    ),
    _copies,
)


def _margin():
    def pushes(gap: float, margin: float) -> tuple[float, float]:
        """Return the gradients of the nine, outwards, and of the tenth, inwards."""
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
    "Nine of ten annotators prefer one completion, p = .9. Without a margin the difference converges to {plain:.3f}. Where does it converge with a margin of 1 on the pairs of both sides?",
    {
        "below it": "With a margin the gradient of every pair grows, also beyond the margin. At {plain:.3f} the gradient from the nine annotators' pairs, which increases the difference, grows from {nine_old:.3f} to {nine_new:.3f}. The gradient from the tenth annotator's pairs, which decreases it, grows from {tenth_old:.3f} to {tenth_new:.3f} only. The fixed point is {asked:.3f}.",
        "where it was": "This would be so if both gradients grew equally. But at {plain:.3f} the tenth's gradient is already close to its maximum, {tenth_old:.3f} of at most .1, and with the margin it is {tenth_new:.3f}. The gradient of the nine grows from {nine_old:.3f} to {nine_new:.3f}.",
        "above it by 1": "This would be so if all pairs had the margin in one direction. The tenth annotator's pairs have it in the opposite direction. At {shifted:.3f} their gradient is larger than the gradient of the nine.",
        "above it by less than 1": "",
    },
    _margin,
)
