"""The predictions that chapter 13 asks its readers for; see ``book/_ext/asking.py``."""

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
    "A policy is right in three of ten completions. It cannot see whether it is right, so it goes on or stops with the same probability in right and in wrong ones. What happens, on average, to the lengths of its completions under GRPO's mean per completion?",
    {
        "they grow": "More completions are wrong, and wrong ones make the policy go on. But each wrong one is only .3 below the pass rate, and a right one is .7 above it: .7 · .3 and .3 · .7 cancel.",
        "they stay as they are": "",
        "they shrink": "Right completions make the policy stop, and each is .7 above the pass rate, while a wrong one is .3 below it. But there are few right ones: .3 · .7 and .7 · .3 cancel.",
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
        low="At a ratio of 1.2 the gradient would vanish. But the gradient is taken at a ratio of 1, where nothing is clipped. And the logit gains {move:.2f}, which is an exponent of the odds.",
        high="The logit gains {move:.2f}. So the odds become {odds:.1f} times as large, and the probability a little less than that.",
    ),
    _one_step,
)

ROWS = {
    "Dr. GRPO, with equal weights for all lists": "dr_grpo",
    "MaxRL, with more weight for hard lists": "maxrl",
    "DAPO, with dynamic sampling": "dapo",
    "GSPO, with a ratio per list": "gspo",
    "no importance ratio, and so no clip": "no_ratio",
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
    "The minimum detectable difference in the sorting model's mean reward was {least:.2f} to {most:.2f}, depending on the row (80 % power). Which one of these rows differs significantly from GRPO's clip?",
    {
        "Dr. GRPO, with equal weights for all lists": "GRPO gives more weight to lists that are nearly always or nearly never sorted correctly, and with two to twelve digits there are easy and hard ones. But over ten seeds the mean reward of all lists did not differ significantly.",
        "no importance ratio, and so no clip": "",
        "MaxRL, with more weight for hard lists": "Adam divides out the scale, so more weight for hard lists is less weight for the other lists. The mean reward of all lists did not differ significantly; the minimum detectable difference was {maxrl:.2f}.",
        "DAPO, with dynamic sampling": "In the clip's eight rollouts up to 16,000 tokens a fraction of {dead:.2f} of the groups has no gradient, so there is something to gain. But dynamic sampling pays with samples, and the comparison is at equal sampled tokens.",
    },
    _sorting,
)


def _penalties(right: int) -> tuple[float, float]:
    """Return the advantage of a wrong completion among eight with ``right`` right ones, by Dr. GRPO and by GRPO."""
    rewards = (torch.arange(8) < right).double()[None]
    centred, scaled = advantages.group_center(rewards), advantages.group_zscore(rewards, ddof=0, eps=0.0)
    return float(centred[0, -1]), float(scaled[0, -1])


def _slip():
    (lone, alone), (half, among) = _penalties(7), _penalties(4)
    times = alone / among
    found = {"lone": -lone, "half": -half, "spread": lone / alone, "wide": half / among}
    assert found["spread"] < found["wide"] and found["half"] < found["lone"]
    return ("smaller" if times < 0.9 else "equal" if times < 1.1 else "larger"), found


one_slip = Ask(
    "All eight completions are right, but the grader scores one as wrong. How large is GRPO's penalty for it, compared with a wrong completion in a group in which four are wrong?",
    {
        "larger": "",
        "equal": "Its reward is {lone:.2f} below the mean of its group, and a wrong one among four is only {half:.2f} below. Then it is divided by a smaller standard deviation, {spread:.2f} instead of {wide:.2f}.",
        "smaller": "The standard deviation of such a group is small, {spread:.2f} instead of {wide:.2f}. But GRPO divides by it.",
    },
    _slip,
)
