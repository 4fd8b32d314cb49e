# ---
# title: Reading a table of results
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# A team took a model through the pipeline: supervised fine-tuning (SFT), then reinforcement learning (RL) against a reward
# model. `report(STUDENT)` returns their measurements, with numbers of your own. Put your student id into `STUDENT` at the top of the notebook.
#
# * `sft` and `rl`: the mean reward and the mean length in tokens of each model's completions on the test prompts;
# * `kl`: how far the RL model is from the SFT model, in nats per completion;
# * `wins`, `ties`, `losses`: how often a judge found the RL model's completion better than, as good as, or worse than the SFT model's;
# * `reward_per_token`: among completions of the *same* SFT model, the additional reward for each additional token.
#
# Their slide called it "a great success". Say how great, in four numbers, each right to 1 %:
#
# 1. `win_rate`: the RL model's win rate. A tie counts as half a win.
# 2. `standard_error`: the standard error of the win rate. Each comparison gave 1, ½ or 0; the standard error of their mean is
#    $\sqrt{\text{variance}/n}$, with the plain (divide by $n$) variance of the scores.
# 3. `reward_per_nat`: RL's gain in reward per nat of KL.
# 4. `length_share`: suppose that each additional token raises the reward by `reward_per_token`, whatever it says. What fraction of RL's gain
#    in reward would its longer completions then explain?

# %% [given]
from minirlhf_course.ledger.registry import Draw


def report(student):
    """Return what the team measured, for this student."""
    draw = Draw("01.2", student)
    wins, ties, losses = draw.integer(210, 260), draw.integer(60, 100), draw.integer(110, 150)
    sft_reward, gain = (
        round(float(draw.uniform(low=0.2, high=0.9)), 2),
        round(float(draw.uniform(low=1.1, high=1.9)), 2),
    )
    sft_length, longer = draw.integer(100, 130), draw.integer(30, 45)
    return {
        "sft": {"reward": sft_reward, "length": sft_length},
        "rl": {"reward": round(sft_reward + gain, 2), "length": sft_length + longer},
        "kl": round(float(draw.uniform(low=6, high=14)), 1),
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "reward_per_token": round(gain * float(draw.uniform(low=0.55, high=0.85)) / longer, 4),
    }


# %% [stub]
print(report(STUDENT))

win_rate = None
standard_error = None
reward_per_nat = None
length_share = None

# %% [solution]
r = report(STUDENT)
n = r["wins"] + r["ties"] + r["losses"]
win_rate = (r["wins"] + 0.5 * r["ties"]) / n
mean_square = (r["wins"] + 0.25 * r["ties"]) / n
standard_error = ((mean_square - win_rate**2) / n) ** 0.5
gain = r["rl"]["reward"] - r["sft"]["reward"]
reward_per_nat = gain / r["kl"]
length_share = r["reward_per_token"] * (r["rl"]["length"] - r["sft"]["length"]) / gain

# %% [tests]
import statistics

from minirlhf_course.classroom.testing import expect, test


def scores(r):
    """Return one number per comparison."""
    return [1.0] * r["wins"] + [0.5] * r["ties"] + [0.0] * r["losses"]


def near(got, want, what, mistakes):
    """Require one percent, without saying what is right."""
    tolerance = 0.01 * abs(want) / max(1.0, abs(want))
    expect(got, want, what=what, tolerance=tolerance, reveal=False, mistakes=mistakes)


@test(
    points=1,
    rounds=1,
    hints=(
        "Each comparison gives the RL model 1, ½ or 0 points. What is the mean?",
        "Wins plus half the ties, over all comparisons. Leaving the ties out would make a weak result look strong.",
    ),
)
def wins(sub, draw):
    "`win_rate` is the mean score of all comparisons."
    r = report(sub.student)
    near(
        sub.number("win_rate"),
        statistics.fmean(scores(r)),
        "`win_rate`",
        {
            "ties are left out of the count": r["wins"] / (r["wins"] + r["losses"]),
            "ties are counted as a quarter": (r["wins"] + 0.25 * r["ties"]) / len(scores(r)),
            "ties are counted as losses": r["wins"] / len(scores(r)),
            "ties are counted as wins": (r["wins"] + r["ties"]) / len(scores(r)),
            "the losing side is counted": 1 - statistics.fmean(scores(r)),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The variance is the mean of the squared scores minus the square of the mean score. A tie's squared score is ¼.",
        "Divide the variance by the number of comparisons and take the root. p(1 − p) would be the variance if there were no ties; with "
        "ties it is smaller.",
    ),
)
def uncertainty(sub, draw):
    "`standard_error` is the root of the scores' variance over their number."
    found = scores(report(sub.student))
    n, p = len(found), statistics.fmean(found)
    near(
        sub.number("standard_error"),
        statistics.pstdev(found) / n**0.5,
        "`standard_error`",
        {
            "p(1 − p) is taken for the variance, as if there were no ties": (p * (1 - p) / n) ** 0.5,
            "a fair coin's variance, 1/4, is taken": 0.5 / n**0.5,
            "it is the standard deviation of one comparison, not of their mean": statistics.pstdev(found),
            "the root is missing": statistics.pvariance(found) / n,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "How much reward did RL add, and how many nats of KL did it use?",
        "The difference of the two mean rewards, divided by the KL. The reward that SFT had already reached is no gain of RL.",
    ),
)
def price(sub, draw):
    "`reward_per_nat` is RL's gain in reward over its KL."
    r = report(sub.student)
    gain = r["rl"]["reward"] - r["sft"]["reward"]
    near(
        sub.number("reward_per_nat"),
        gain / r["kl"],
        "`reward_per_nat`",
        {
            "the whole reward is counted, not the gain": r["rl"]["reward"] / r["kl"],
            "the ratio is upside down": r["kl"] / gain,
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "By how many tokens are the RL model's completions longer? How much reward does this give at `reward_per_token`?",
        "Additional tokens, times reward per token, over the gain in reward. A fraction near one would mean that RL has mostly learned to be long.",
    ),
)
def verbosity(sub, draw):
    "`length_share` is the fraction of the gain that longer completions alone would explain."
    r = report(sub.student)
    gain, longer = r["rl"]["reward"] - r["sft"]["reward"], r["rl"]["length"] - r["sft"]["length"]
    near(
        sub.number("length_share"),
        longer * r["reward_per_token"] / gain,
        "`length_share`",
        {
            "the reward explained is given, not its fraction of the gain": longer * r["reward_per_token"],
            "the whole length is counted, not what RL added": r["rl"]["length"] * r["reward_per_token"] / gain,
            "it is the fraction that length does not explain": 1 - longer * r["reward_per_token"] / gain,
            "it is the growth of the length": longer / r["sft"]["length"],
        },
    )


# %% [mutant] ties left out
# caught by: wins
# says: left out
win_rate = r["wins"] / (r["wins"] + r["losses"])

# %% [mutant] the variance without ties
# caught by: uncertainty
# says: no ties
standard_error = (win_rate * (1 - win_rate) / n) ** 0.5

# %% [mutant] the reward of SFT counted as a gain of RL
# caught by: price
# says: not the gain
reward_per_nat = r["rl"]["reward"] / r["kl"]

# %% [mutant] the reward explained instead of its fraction
# caught by: verbosity
# says: the reward explained
length_share = length_share * gain

# %% [mutant] all of the length
# caught by: verbosity
# says: the whole length
length_share = r["reward_per_token"] * r["rl"]["length"] / gain

# %% [partial] 3: everything except the fraction of length
length_share = None

# %% [partial] 4: everything except the uncertainty
standard_error = (win_rate * (1 - win_rate) / n) ** 0.5
