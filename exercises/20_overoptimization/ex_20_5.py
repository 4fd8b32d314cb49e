# ---
# title: When to stop
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# A policy is optimised against a proxy. The proxy reward rises to the end; the *gold reward* rises, turns and falls. After every few steps
# annotators grade forty completions. Their mean grade is your only information about the gold reward, and it is noisy. You cannot go back: the policy at which you stop is the one that is shipped.
#
# 1. (five minutes) `smoothed(grades, window)`: for a list of grades so far, oldest first, return the list of trailing means. Entry $i$ is the mean of the grades $i - \text{window} + 1$ to
#    $i$, or of as many of them as exist.
# 2. `stop(proxy, grades)`: called after every evaluation with two lists, the proxy rewards and the grades so far. Return True to stop there, False to continue. The rule
#    is up to you.
#
# How it is scored: over six seeds, each with 40 runs of up to 40 evaluations. Each run has new rewards, completions and noise, and a new turning point of the gold reward. Your
# score is the mean *gold reward* of the policies at which you stop. It is compared with our rule, which is a simple one, on the same runs. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.25.
# The gold reward has a standard deviation between 1 and 2 over completions. It turns early in some runs, late or never in others, and each proxy has a scale of its own.
# Your rule also meets grades *without* noise. While they rise, it must not stop, whatever the number of evaluations. It must stop within ten evaluations after they have begun to
# fall, steadily and steeply.

# %% [given]
import statistics


# %% [stub]
def smoothed(grades, window):
    """grades: a list of n numbers. Returns a list of n numbers."""
    raise NotImplementedError


def stop(proxy, grades):
    """proxy, grades: two lists of n numbers, one for each evaluation so far. Returns True or False."""
    raise NotImplementedError


# %% [solution]
def smoothed(grades, window):
    return [statistics.fmean(grades[max(0, i - window + 1) : i + 1]) for i in range(len(grades))]


def stop(proxy, grades):
    means = smoothed(grades, 5)
    best = max(range(len(means)), key=means.__getitem__)
    return len(means) - 1 - best >= 3


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains

LENGTH, REPLIES, GRADED = 40, 60, 40


@test(
    points=1,
    hints=(
        "Write down the first three entries by hand, for a window of 2.",
        "`grades[max(0, i - window + 1) : i + 1]`, and its mean, for each i.",
    ),
)
def trails(sub, draw):
    "`smoothed` is the mean of the last `window` grades, or of as many as exist."
    grades, window = tidy(draw.uniform(7, low=-1, high=2)).tolist(), draw.integer(2, 4)
    right, whole, ahead = [], [], []
    for i in range(7):
        last = [grades[j] for j in range(7) if i - window < j <= i]
        right.append(sum(last) / len(last))
        whole.append(sum(last) / window)
        following = [grades[j] for j in range(7) if i <= j < i + window]
        ahead.append(sum(following) / len(following))

    def past(taken):
        return torch.tensor([sum(taken(i)) / len(taken(i)) for i in range(7)], dtype=torch.float64)

    expect(
        torch.as_tensor(sub.smoothed(grades, window), dtype=torch.float64),
        torch.tensor(right, dtype=torch.float64),
        what="the smoothed grades",
        given={"grades": grades, "window": window},
        mistakes={
            "the first sums are divided by the whole window": torch.tensor(whole, dtype=torch.float64),
            "the window looks ahead": torch.tensor(ahead, dtype=torch.float64),
            "the window is centred on the grade, so it looks ahead": past(
                lambda i: grades[max(0, i - window // 2) : i + window // 2 + 1]
            ),
            "the window is one too wide": past(lambda i: grades[max(0, i - window) : i + 1]),
            "it is the mean of all grades so far": past(lambda i: grades[: i + 1]),
            "it is the smallest of the window": past(lambda i: [min(grades[max(0, i - window + 1) : i + 1])]),
        },
    )


def run(draw):
    """One run against a proxy: the mean proxy reward, the gold reward and the noisy grade of the policy at each evaluation."""
    gold = draw.normal(REPLIES)
    proxy = gold + draw.normal(REPLIES, scale=0.7)
    reference = draw.normal(REPLIES, scale=0.5)
    flattery = draw.permutation(REPLIES)[:3]  # what the proxy overrates: rare at first, ranked highest at the end
    proxy[flattery], gold[flattery] = 4.5, -6.0
    reference[flattery] = -1.0 - 19 * draw.uniform(1)  # turns early, late or never, so that no fixed step is good
    pressure = torch.linspace(0, 4.0, LENGTH, dtype=torch.float64)[:, None]
    policies = (reference + pressure * proxy).softmax(-1)  # (evaluations, replies): the best at β = 1/pressure
    shown = torch.searchsorted(policies.cumsum(-1), draw.uniform(LENGTH, GRADED)).clamp(max=REPLIES - 1)
    shift, scale = draw.uniform(1, low=-2, high=2), draw.uniform(1, low=0.5, high=2)
    return shift + scale * (policies @ proxy), policies @ gold, gold[shown].mean(-1)


def clear(sub, draw):
    """Without noise: no stop while grades rise, and a stop soon after they have turned, early or late."""
    start = float(draw.uniform(1, low=-0.5, high=0.5))
    for turn in (draw.integer(7, 11), draw.integer(26, 29), LENGTH):
        heights = [turn - abs(i - turn) for i in range(LENGTH)]  # rises to evaluation `turn`, then falls
        grades, proxy = [start + 0.15 * h for h in heights], [0.1 * i for i in range(LENGTH)]
        stops = next((n for n in range(1, LENGTH + 1) if bool(sub.stop(proxy[:n], grades[:n]))), LENGTH + 1)
        if stops <= min(turn, LENGTH):
            fail(
                f"it stops at evaluation {stops} of {LENGTH}, while the grades still rise, and without noise", turn=turn
            )
        if turn < LENGTH and stops > turn + 11:
            fail("the grades have fallen for ten evaluations, without noise, and it does not stop", turn=turn)


@trains(
    points=4,
    hints=(
        "Which of the two lists has information about the gold reward? And how far does noise alone move it from one evaluation to the next?",
        "Smooth the grades over a few evaluations. Record the best smoothed value, and stop when the smoothed curve has been below it for about three evaluations.",
    ),
    seeds=6,
    bar=0.25,
    what="the gold reward of the policies at the stops",
    also=(clear,),
)
def in_time(sub, draw):
    "`stop` stops near the peak of the gold reward: six seeds of 40 runs, each compared with our rule."
    begun, reached = [], []
    for _ in range(40):
        proxy, gold, grades = run(draw)
        for n in range(1, LENGTH + 1):
            answer = sub.stop(proxy[:n].tolist(), grades[:n].tolist())
            if getattr(answer, "dtype", None) == torch.bool and answer.numel() == 1:
                answer = bool(answer)
            if not isinstance(answer, bool):
                fail(f"`stop` returned {answer!r}; expected True or False")
            if answer:
                break
        begun.append(gold[0])
        reached.append(gold[n - 1])
    return [float(torch.stack(x).mean()) for x in (begun, reached)]


# %% [edges]
# in_time: While they rise, it must not stop


# %% [probes]
# no gradient: lists of numbers
# no keywords, size, values, float32 of stop: any rule that stops in time is right


# %% [mutant] divided by the whole window
# caught by: trails
# says: divided by the whole window
def smoothed(grades, window):
    return [sum(grades[max(0, i - window + 1) : i + 1]) / window for i in range(len(grades))]


# %% [mutant] the window looks ahead
# caught by: trails
# says: looks ahead
def smoothed(grades, window):
    return [statistics.fmean(grades[i : i + window]) for i in range(len(grades))]


# %% [mutant] never
# caught by: in_time
# says: below ours
def stop(proxy, grades):
    return False


# %% [mutant] at once
# caught by: in_time
# says: nothing changes
def stop(proxy, grades):
    return True


# %% [mutant] at the first fall
# caught by: in_time
# says: below ours
def stop(proxy, grades):
    return len(grades) > 1 and grades[-1] < grades[-2]


# %% [mutant] when the proxy falls
# caught by: in_time
# says: below ours
def stop(proxy, grades):
    means = smoothed(proxy, 5)
    best = max(range(len(means)), key=means.__getitem__)
    return len(means) - 1 - best >= 3


# %% [mutant] at a fixed step
# caught by: in_time
# says: below ours
def stop(proxy, grades):
    return len(grades) >= 25


# %% [cheat] at evaluation 10, whatever is seen
def stop(proxy, grades):
    return len(grades) >= 10


# %% [cheat] at evaluation 18, whatever is seen
def stop(proxy, grades):
    return len(grades) >= 18


# %% [cheat] when the proxy has risen by as much as in most runs
def stop(proxy, grades):
    return proxy[-1] - proxy[0] > 1.5


# %% [partial] 1: the smoothing
def stop(proxy, grades):
    raise NotImplementedError
