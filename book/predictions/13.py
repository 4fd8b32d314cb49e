"""What chapter 13 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf.core import exact
from minirlhf.equations import advantages, policy_losses
from minirlhf_course import evidence
from minirlhf_course.chapters.ch13_group_relative_methods.group_bias import StoppingPolicy, expected_step


def _blind():
    policy = StoppingPolicy.start(0.3, 9.0, sees_correctness=False)
    step = float(expected_step(policy, per_token_mean=True, num_generations=8)[1])  # in the logit of going on
    return "they grow" if step > 1e-9 else "they shrink" if step < -1e-9 else "they stay as they are", {}


blind = Ask(
    "A policy is right in three of ten replies, and goes on or stops alike in right and in wrong ones, since it cannot tell them apart. What becomes, on average, of the lengths of its replies under GRPO's mean per reply?",
    {
        "they grow": "More replies are wrong, and wrong ones pull that way. But each of them lies only .3 below the pass rate, where a right one lies .7 above it: .7 · .3 and .3 · .7 cancel.",
        "they stay as they are": "",
        "they shrink": "Right replies pull that way, and each lies .7 above the pass rate, where a wrong one lies .3 below it. But there are few of them: .3 · .7 and .7 · .3 cancel.",
    },
    _blind,
)


def _one_step():
    logit = torch.tensor(0.01, dtype=torch.float64).logit().requires_grad_()
    one = torch.ones(1, 1, dtype=torch.float64)

    def logp() -> torch.Tensor:
        return torch.nn.functional.logsigmoid(logit).view(1, 1)

    old = logp().detach()
    push = exact.gradient(policy_losses.ppo_clip(logp(), old, one, one.bool(), epsilon=0.2).sum(), logit)
    after = torch.sigmoid(logit.detach() + 2.0 * push)
    return float(after) / 0.01, {"move": 2.0 * float(push), "odds": float((2.0 * push).exp())}


one_step = Ask(
    "A token has probability .01, advantage 1 and ratio 1, and only its own logit moves. With ε = .2, what is its ratio after one gradient step of size 2?",
    Typed(
        within=0.3,
        form=".1f",
        low="A ratio of 1.2 is where the gradient would vanish. At the ratio of 1, where it is taken, all of it is there; and the {move:.2f} that the logit gains stands in an exponent.",
        high="The logit gains {move:.2f}, so that the odds become {odds:.1f} times as large, and the probability a little less than that.",
    ),
    _one_step,
)

ROWS = {
    "Dr. GRPO, with equal weights for all lists": "dr_grpo",
    "MaxRL, with more weight for hard lists": "maxrl",
    "DAPO, with refilling": "dapo",
    "GSPO, with a ratio per list": "gspo",
    "no ratio, and with it no clip": "no_ratio",
}


def _sorting():
    columns = {name: seeds("ch13_mixed", f"{row}_area") for name, row in ROWS.items()}
    columns["clip"] = seeds("ch13_mixed", "clip_area")
    found = evidence.differences(columns, [(name, "clip") for name in ROWS])
    apart = [name for name in ROWS if found[name, "clip"].significant]
    seen = {row: found[name, "clip"].minimum_detectable_effect for name, row in ROWS.items()}
    dead = mean("ch13_mixed", "clip_frac_reward_zero_std")
    return ", ".join(apart), {**seen, "least": min(seen.values()), "most": max(seen.values()), "dead": dead}


sorting = Ask(
    "In the sorting model's mean reward a difference of {least:.2f} to {most:.2f}, depending on the row, would have been found in four of five such studies. Which one of these rows can be told from GRPO's clip?",
    {
        "Dr. GRPO, with equal weights for all lists": "GRPO listens more to the lists that are nearly always or nearly never sorted rightly, and with two to twelve digits there are easy and hard ones. But whose weights earn more on all lists together, ten seeds do not see.",
        "no ratio, and with it no clip": "",
        "MaxRL, with more weight for hard lists": "Adam divides out the scale, so that more weight for hard lists is less for the others. In the mean reward of all lists no difference was found; one of {maxrl:.2f} would have been, in four of five such studies.",
        "DAPO, with refilling": "Of the groups in the clip's eight rollouts up to 16,000 tokens {dead:.2f} have no signal, so there is something to gain. But who refills pays for it with samples, and the comparison is at equal sampled tokens.",
    },
    _sorting,
)


def _pushed(right: int) -> tuple[float, float]:
    """What a wrong reply gets among eight of which so many are right, by Dr. GRPO and by GRPO."""
    rewards = (torch.arange(8) < right).double()[None]
    centred, scaled = advantages.group_center(rewards), advantages.group_zscore(rewards, ddof=0, eps=0.0)
    return float(centred[0, -1]), float(scaled[0, -1])


def _slip():
    (lone, alone), (half, among) = _pushed(7), _pushed(4)
    times = alone / among
    found = {"lone": -lone, "half": -half, "spread": lone / alone, "wide": half / among}
    assert found["spread"] < found["wide"] and found["half"] < found["lone"]
    return ("less hard" if times < 0.9 else "as hard" if times < 1.1 else "harder"), found


one_slip = Ask(
    "All of eight replies are right, but the grader marks one as wrong. How hard does GRPO push it down, compared with a wrong reply of a group in which four are wrong?",
    {
        "harder": "",
        "as hard": "Its reward lies {lone:.2f} below the mean of its group, a wrong one among four only {half:.2f}; and then it is divided by the smaller deviation, {spread:.2f} in place of {wide:.2f}.",
        "less hard": "There is little spread in such a group, {spread:.2f} where the other has {wide:.2f}. But GRPO divides by it.",
    },
    _slip,
)
