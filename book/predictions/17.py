"""What chapter 17 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations.returns import returns_to_go
from minirlhf_course import evidence
from minirlhf_course.chapters.ch17_tools import equations as ch17
from minirlhf_course.chapters.ch17_tools.adventure import BONUS

# -- a thought before an act


def _empty_words():
    thinks, waits, acts, longer = (
        seeds("ch17_thoughts", f"{way}_3_right") for way in ("thinks", "waits", "acts", "longer")
    )
    [found] = evidence.differences({"waits": waits, "acts": acts}).values()
    [gain] = evidence.differences({"thinks": thinks, "acts": acts}).values()
    if not found.significant and found.interval[1] < gain.mean / 10:
        answer = "about as often as with nothing before an action"
    elif found.mean > gain.mean / 2:
        answer = "nearly as often as with the sum so far"
    else:
        answer = "more often than with nothing, but far less than with the sum"
    numbers = {
        "waits": sum(waits) / 5,
        "acts": sum(acts) / 5,
        "thinks": sum(thinks) / 5,
        "seen": found.minimum_detectable_effect,
    }
    return answer, numbers | {"least": min(longer), "most": max(longer)}


empty_words = Ask(
    "A model is shown empty words instead of each thought, in the same number. So it can compute over the same number of tokens. After the same number of training steps, how often does it find the sum of three numbers?",
    {
        "nearly as often as with the sum so far": "Tokens give it room, but after this training it has not learned to use them. With the partial sums, each demonstration shows each step of the addition. Without thoughts, three times the questions and steps lead to {least:.2f} to {most:.2f} across seeds. We did not try this for empty words.",
        "more often than with nothing, but far less than with the sum": "More room could help, but we see no effect. The fraction of right answers is {waits:.2f} with empty words, {acts:.2f} with nothing and {thinks:.2f} with the sum. The first two did not differ significantly (minimum detectable difference {seen:.2f} at 80 % power). Chance is .10.",
        "about as often as with nothing before an action": "",
    },
    _empty_words,
)

# -- the tool's words


def _after(steps: int, advantage: float) -> torch.Tensor:
    """Return the mean log π of a tool's three words after a number of gradient steps."""
    spoken = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    logits = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    for _ in range(steps):
        logits = logits + ch17.observation_gradient(spoken, logits.softmax(-1), torch.full_like(spoken, advantage))
    return spoken @ logits.log_softmax(-1)


def _pushed():
    start, some, more = (float(_after(steps, -0.5)) for steps in (0, 150, 300))
    good = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    if float(_after(300, 0.5)) < float(good @ good.log()) - 1e-3:
        raise ValueError("with an advantage above 0 the policy does not come to speak like the tool")
    if abs(some - start) < 1e-6:
        return "nowhere", {}
    if some > start:
        return "towards what the tool says", {}
    return "away from what the tool says, further and further" if more < some - 1 else "to a place at some distance", {}


pushed_away = Ask(
    "The loss includes the tool's tokens. The conversations with a call score below their group, by the same amount for every output of the tool. While the policy keeps calling, where does the gradient move it at the tool's tokens?",
    {
        "nowhere": "A constant would cancel if the policy had sampled the words, as a baseline does. But the tool samples them from its own distribution. The gradient is proportional to P − π, and zero only for a policy that speaks exactly like the tool.",
        "towards what the tool says": "That is imitation, as in fine-tuning. It happens where the conversations with a call score above their group; here the advantage has the other sign.",
        "away from what the tool says, further and further": "",
    },
    _pushed,
)

# -- credit for turns


def _key():
    rewards = torch.tensor([[0.3, 0, 1], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0]], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [True, True, False]])
    returns = returns_to_go(rewards, mask)
    credit = ch17.turn_advantages(returns, mask, num_generations=4)
    whole = float(returns[2, 0] - returns[:, 0].mean())
    numbers = {"whole": whole, "mean": float(returns[:, 1].mean()), "found": float(returns[2, 1])}
    return float(credit[2, 1]), numbers


key_found = Ask(
    "Four conversations of one group get these rewards, turn by turn: .3, 0, 1; then .3, 0, 0; then 0, .3; then 0, 0. The third conversation finds the key in its second turn. Which advantage does turn credit give to this turn?",
    Typed(
        within=0.01,
        form=".3f",
        low="{whole:.3f} is the total reward of the conversation minus the mean of the group. From turn 2 on the four received 1, 0, .3 and 0, on average {mean:.3f}, and this one {found:.1f}.",
        high="The turn received {found:.1f}. But this is compared with the rewards of all four from their second turn on, {mean:.3f} on average, since one of them still received 1.",
    ),
    _key,
)


def _levelled():
    end, bonus, level = (mean("ch17_turns", f"{world}_slow_course_steps") for world in ("end", "bonus", "level"))
    said = compared("ch17_turns", "level_slow_course_steps", "end_slow_course_steps")
    answer = {"smaller": "fewer than {end}", "alike": "about {end}", "larger": "more than {end}"}[said]
    return answer.format(end=f"{end:.0f}"), {
        "end": end,
        "bonus": bonus,
        "level": level,
        "treasure": 1 / (1 + 2 * BONUS),
    }


levelled = Ask(
    "With bonuses of .3 for the key and for the door, an episode gets up to 1.6 instead of 1. Now all rewards are divided by 1.6. The learning rate stays, and advantages are not divided by the group's standard deviation. The tabular policy needed {end:.0f} steps with the reward at the end alone. How many does it need now?",
    {
        "fewer than 27": "Bonuses do distinguish early episodes. But at a given rate larger rewards mean larger steps. Without larger steps the gain is gone: the policy takes {level:.0f} steps.",
        "about 27": "The rewards again add up to 1, but the treasure is now only {treasure:.3f} of that, and its gradient shrinks by the same factor. The policy takes {level:.0f} steps.",
        "more than 27": "",
    },
    _levelled,
)

# -- what a call is worth


def _break_even():
    """Return the percentage of silent errors at which a free call has the value 0, by bisection."""
    read, head = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.8, dtype=torch.float64)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(ch17.tool_call_value(read, head, lie=middle)) > 0 else (low, middle)
    return 100 * low, {
        "share": 100 * low,
        "head": 100 * float(head),
        "half": float(ch17.tool_call_value(read, head, lie=0.5)),
    }


too_many_lies = Ask(
    "A call is free, the tool never reports a failure, and the policy reads and believes its outputs without error. From memory the policy is right in {head:.0f} % of cases. Which percentage of silent errors makes the tool no better than no tool?",
    Typed(
        within=3,
        unit="%",
        form=".0f",
        low="With fewer silent errors than {share:.0f} % the tool is right in more than {head:.0f} % of cases, more often than the memory.",
        high="A tool that is right in most cases can be worse than the memory, which is right in {head:.0f} %. With 50 % silent errors the value of the call is {half:.1f}.",
    ),
    _break_even,
)

# -- whose words are instructions


def _remarks():
    control, remarks, after = (seeds("ch17_injection", f"{arm}_new_right") for arm in ("control", "remarks", "after"))
    share = (sum(remarks) - sum(control)) / (sum(after) - sum(control))
    if share < 0.2:
        return "hardly more than after training with nothing injected"
    return "about half way between" if share < 0.8 else "as many as after training on requests"


only_remarks = Ask(
    "Another policy is trained for the same number of steps, with remarks that request nothing instead of the injected requests. How many of its answers are right when requests with new words are injected?",
    {
        "hardly more than after training with nothing injected": "It has seen no request in a tool's output, so it cannot have learned to refuse one. It does not need to refuse one. It has learned that words may follow the value, and that the answer does not contain them.",
        "about half way between": "A remark is less than a request, so part of the training seems to be missing. But before training the policy did not know that anything can follow the value in a tool's output. A remark shows that, too.",
        "as many as after training on requests": "",
    },
    _remarks,
)

# -- what turns cost


def _read_again():
    prompt, said, heard = torch.tensor(500.0), torch.full((20,), 100.0), torch.full((20,), 400.0)
    again = float(ch17.prefill_tokens_without_cache(prompt, said, heard))
    on = float(ch17.prefill_tokens_with_cache(prompt, heard))
    return again, {
        "on": on / 1000,
        "once": float(prompt + (said + heard)[:-1].sum()) / 1000,
        "prompts": 20 * float(prompt) / 1000,
    }


read_again = Ask(
    "An engine begins each turn from the start. A prompt has 500 tokens. In each of twenty turns the policy writes 100 tokens, and a result of 400 tokens is appended. How many tokens does the engine read in total?",
    Typed(
        within=1.25,
        factor=True,
        unit="tokens",
        form=",.0f",
        low="The whole conversation, read once, has about {once:.0f} thousand tokens, and twenty prompts have {prompts:.0f} thousand. But the second turn reads the first, the third reads both, and so on.",
        high="The last turn reads about {once:.0f} thousand tokens and the first only the prompt. The average is about half of the last.",
    ),
    _read_again,
)
