"""What chapter 17 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations import tools
from minirlhf.equations.returns import returns_to_go
from minirlhf_course import evidence
from minirlhf_course.chapters.ch17_tools.adventure import BONUS

# -- a thought before an act


def _empty_words():
    thinks, waits, acts, longer = (
        seeds("ch17_thoughts", f"{way}_3_right") for way in ("thinks", "waits", "acts", "longer")
    )
    [found] = evidence.differences({"waits": waits, "acts": acts}).values()
    [gain] = evidence.differences({"thinks": thinks, "acts": acts}).values()
    if not found.significant and found.interval[1] < gain.mean / 10:
        answer = "about as often as with nothing before an act"
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
    "A model that is shown as many empty words in place of each thought has as many tokens to compute in. After equally many steps of training, how often does it find the sum of three numbers?",
    {
        "nearly as often as with the sum so far": "Tokens give it room, but by then it has not found out what to do there. With the partial sums each demonstration shows each step of the adding. Without thoughts, three times the questions and steps lead to shares from {least:.2f} to {most:.2f}, depending on the run; for empty words that was not tried.",
        "more often than with nothing, but far less than with the sum": "A little more room might help. Of that nothing is seen: {waits:.2f} of the answers are right with empty words, {acts:.2f} with nothing and {thinks:.2f} with the sum, and a difference of {seen:.2f} would have been found. A guess would be right in .10.",
        "about as often as with nothing before an act": "",
    },
    _empty_words,
)

# -- the tool's words


def _after(steps: int, advantage: float) -> torch.Tensor:
    """log π of a tool's three words after so many pushes."""
    spoken = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    logits = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    for _ in range(steps):
        logits = logits + tools.observation_gradient(spoken, logits.softmax(-1), torch.full_like(spoken, advantage))
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
    "The tool's words are counted in the loss, and the conversations with a call do worse than the others of their group, by the same amount whatever the tool says. As long as the policy goes on calling, where does the push take it at the tool's words?",
    {
        "nowhere": "What is the same for all words would cancel if the policy had drawn them, as a baseline does. The tool draws them from a distribution of its own, and what is left is proportional to P − π: zero only for a policy that speaks just like the tool.",
        "towards what the tool says": "That is imitation, as if by fine-tuning. It is so where the conversations with a call do better than the others; here the advantage has the other sign.",
        "away from what the tool says, further and further": "",
    },
    _pushed,
)

# -- credit for turns


def _key():
    rewards = torch.tensor([[0.3, 0, 1], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0]], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [True, True, False]])
    returns = returns_to_go(rewards, mask)
    credit = tools.turn_advantages(returns, mask, num_generations=4)
    whole = float(returns[2, 0] - returns[:, 0].mean())
    numbers = {"whole": whole, "mean": float(returns[:, 1].mean()), "found": float(returns[2, 1])}
    return float(credit[2, 1]), numbers


key_found = Ask(
    "Four conversations of one group earn, turn by turn: .3, 0, 1; then .3, 0, 0; then 0, .3; then 0, 0. Which advantage does turn credit give to the second turn of the third conversation, the one that finds the key there?",
    Typed(
        within=0.01,
        form=".3f",
        low="{whole:.3f} is what the whole conversation earned less the mean of the group. From turn 2 on the four earned 1, 0, .3 and 0, on average {mean:.3f}, and this one {found:.1f}.",
        high="The turn earned {found:.1f}. But that is compared with what all four earned from their second turn on, {mean:.3f} on average, since one of them still earned 1.",
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
    "With bonuses of .3 for the key and for the door a course earns up to 1.6 in place of 1. All its rewards are divided by 1.6; the learning rate stays, and advantages are not divided by the group's deviation. How many steps does the table need then, where it needed {end:.0f} with the reward at the end alone?",
    {
        "fewer than 27": "Bonuses do tell early courses apart. But at a given rate larger rewards are larger steps, and without these the gain is gone: the table takes {level:.0f} steps.",
        "about 27": "The rewards again add up to 1, but the treasure is now only {treasure:.3f} of that, and the push that it gives is smaller in proportion. The table takes {level:.0f} steps.",
        "more than 27": "",
    },
    _levelled,
)

# -- what a call is worth


def _break_even():
    """The share of lies at which a free call is worth nothing, by bisection."""
    read, head = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.8, dtype=torch.float64)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(tools.tool_call_value(read, head, lie=middle)) > 0 else (low, middle)
    return 100 * low, {
        "share": 100 * low,
        "head": 100 * float(head),
        "half": float(tools.tool_call_value(read, head, lie=0.5)),
    }


too_many_lies = Ask(
    "A call is free, the tool never says that it failed, its outputs are read without error and believed, and the head is right in {head:.0f} % of the cases. Which share of lies makes the tool no better than no tool?",
    Typed(
        within=3,
        unit="%",
        form=".0f",
        low="With fewer lies than {share:.0f} % the tool is right in more than {head:.0f} % of the cases, more often than the head.",
        high="A tool that is right more often than not need not be better than the head, which is right in {head:.0f} %. At 50 % of lies the call is worth {half:.1f}.",
    ),
    _break_even,
)

# -- whose words are instructions


def _remarks():
    control, remarks, after = (seeds("ch17_injection", f"{arm}_new_right") for arm in ("control", "remarks", "after"))
    share = (sum(remarks) - sum(control)) / (sum(after) - sum(control))
    if share < 0.2:
        return "hardly more than after training with nothing planted"
    return "about half way between" if share < 0.8 else "as many as after training on requests"


only_remarks = Ask(
    "Another policy is trained for as many steps, with remarks that ask for nothing in place of the planted requests. How many of its answers are right where requests with new words are planted?",
    {
        "hardly more than after training with nothing planted": "It has met no request in a tool's output, so that it cannot have learned to refuse one. It need not: it has learned that words may follow the value, and that the answer is made without them.",
        "about half way between": "A remark is less than a request, so that half of the lesson seems to be missing. But what was missing before was to know that anything may stand behind the value in a tool's output, and a remark shows that, too.",
        "as many as after training on requests": "",
    },
    _remarks,
)

# -- what turns cost


def _read_again():
    prompt, said, heard = torch.tensor(500.0), torch.full((20,), 100.0), torch.full((20,), 400.0)
    again = float(tools.prefill_tokens_without_cache(prompt, said, heard))
    on = float(tools.prefill_tokens_with_cache(prompt, heard))
    return again, {
        "on": on / 1000,
        "once": float(prompt + (said + heard)[:-1].sum()) / 1000,
        "prompts": 20 * float(prompt) / 1000,
    }


read_again = Ask(
    "An engine begins each turn from the start. A prompt has 500 tokens, and in twenty turns the policy writes 100 tokens each, behind each of which an answer of 400 is put. How many tokens does the engine read in all?",
    Typed(
        within=1.25,
        factor=True,
        unit="tokens",
        form=",.0f",
        low="About {once:.0f} thousand are the whole conversation, read once, and {prompts:.0f} thousand are twenty prompts. But the second turn reads the first, the third reads both, and so on.",
        high="The last turn reads about {once:.0f} thousand tokens and the first only the prompt; on average it is about half of what the last one reads.",
    ),
    _read_again,
)
