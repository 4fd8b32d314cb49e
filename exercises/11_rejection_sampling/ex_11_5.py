# ---
# title: Five logs of rejection sampling
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five runs of rejection sampling on the assistant world of chapter 01, six rounds each: 32 prompts, 8 replies to each, ten steps of fine-tuning on what was kept. All
# logs are real; into four of the runs a mistake was put on purpose, one each, and none of them crashed. `logs(STUDENT)` has five of them in an order of your own. Each row is a round:
#
# * `reward`, the mean of all 256 sampled replies, and `kept`, the mean of those that were kept;
# * `prompts`, how many of the 32 prompts the kept replies answer;
# * `loss`, nats per token of the kept replies, at the *first* of the ten steps;
# * `length`, tokens of a sampled reply on average.
#
# Whose log is it? Answer `run_1`, `run_2`, `run_3`, `run_4` and `run_5` with letters, each used once.
#
# (a) healthy: the best reply to each prompt is kept\
# (b) as many replies are kept at random\
# (c) the engine that samples never receives the new weights\
# (d) the best is taken along the wrong axis of the reward matrix\
# (e) the kept replies are fine-tuned on as answers to one another's prompts

# %% [given]
import torch

from minirlhf_course.ledger.registry import Draw

COLUMNS = ("reward", "kept", "prompts", "loss", "length")


# Fifteen logs in no order, each six rows of five numbers in hundredths (`prompts` as it is), and which five make one task.
LOGS = [
    "78 66 22 146 811 49 74 22 145 748 13 -1 18 136 900 20 26 22 127 850 4 -3 22 101 882 14 20 20 104 803",
    "78 185 32 211 811 38 152 32 158 746 42 166 32 159 734 50 165 32 146 712 62 174 32 104 727 93 171 32 90 648",
    "75 188 32 211 810 21 164 32 163 732 26 154 32 144 765 63 171 32 119 702 84 185 32 94 660 76 151 32 97 613",
    "80 191 32 128 757 80 185 32 154 744 87 186 32 157 796 72 195 32 139 808 73 193 32 150 822 78 185 32 138 794",
    "75 226 8 123 810 101 237 6 45 806 96 249 7 50 856 133 244 5 34 790 125 243 6 42 859 114 250 6 27 886",
    "80 93 21 151 757 50 43 21 126 704 41 34 20 134 688 16 25 20 137 766 -2 -25 23 122 715 -50 6 21 132 840",
    "80 191 32 219 757 34 160 32 161 809 40 156 32 146 714 44 152 32 137 738 52 169 32 108 760 82 166 32 89 621",
    "78 224 8 116 811 131 234 7 74 709 114 242 5 28 811 89 247 4 27 931 93 249 4 16 973 135 248 2 13 969",
    "75 188 32 122 810 80 191 32 167 785 80 190 32 145 779 90 189 32 154 730 75 183 32 150 812 70 187 32 154 784",
    "80 191 32 128 757 119 222 32 91 818 150 229 32 58 855 170 236 32 49 849 195 238 32 51 815 194 239 32 46 819",
    "78 185 32 124 811 93 193 32 109 665 119 205 32 78 726 122 209 32 61 680 146 218 32 47 680 173 223 32 44 751",
    "80 222 8 112 757 124 241 7 61 789 128 248 7 42 940 141 252 4 33 946 164 248 3 19 909 114 248 3 17 1124",
    "78 185 32 124 811 77 193 32 147 771 77 190 32 152 765 78 178 32 130 754 73 189 32 142 805 76 188 32 169 783",
    "75 188 32 122 810 104 207 32 104 725 125 219 32 82 765 157 222 32 58 768 175 236 32 48 806 180 231 32 48 772",
    "75 57 23 153 810 37 51 22 144 845 19 -41 20 134 766 -14 -23 20 150 823 -10 23 22 148 724 -30 -54 20 144 820",
]
TASKS = [
    (8, 7, 10, 14, 6),
    (4, 2, 13, 14, 3),
    (11, 13, 8, 5, 6),
    (4, 3, 1, 13, 0),
    (14, 1, 10, 11, 3),
    (7, 6, 14, 8, 10),
    (3, 5, 6, 4, 13),
    (3, 11, 10, 1, 0),
    (10, 7, 8, 14, 1),
    (0, 8, 1, 10, 7),
    (2, 13, 3, 0, 4),
    (3, 14, 10, 1, 11),
    (0, 6, 7, 10, 3),
    (12, 11, 1, 14, 10),
    (0, 12, 2, 10, 7),
    (9, 4, 14, 12, 1),
    (1, 9, 8, 14, 11),
    (4, 10, 12, 6, 0),
    (5, 8, 1, 13, 11),
    (9, 6, 14, 8, 4),
    (3, 10, 11, 1, 14),
    (1, 11, 0, 3, 10),
    (2, 4, 9, 0, 3),
    (11, 9, 8, 5, 6),
    (5, 11, 8, 2, 9),
    (12, 2, 7, 10, 0),
    (4, 13, 6, 12, 5),
    (1, 5, 3, 13, 7),
    (14, 11, 3, 1, 10),
    (10, 12, 5, 7, 2),
    (1, 11, 0, 13, 12),
    (6, 14, 9, 3, 7),
    (10, 12, 11, 0, 1),
    (10, 7, 6, 0, 8),
    (4, 6, 9, 0, 8),
    (1, 11, 10, 5, 3),
    (10, 5, 3, 7, 2),
    (14, 1, 7, 8, 13),
    (14, 11, 2, 13, 8),
    (4, 3, 10, 2, 5),
]


def logs(student):
    """This student's five logs, (6, 5) each."""
    scale = torch.tensor([100.0, 100.0, 1.0, 100.0, 100.0], dtype=torch.float64)
    five = TASKS[Draw("11.5", student).integer(0, len(TASKS) - 1)]
    return [torch.tensor([int(x) for x in LOGS[i].split()], dtype=torch.float64).reshape(6, 5) / scale for i in five]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"run {number}   " + " ".join(f"{name:>8}" for name in COLUMNS))
    for rounds, row in enumerate(log.tolist(), 1):
        print(f"  {rounds}     " + " ".join(f"{x:8.2f}" for x in row))

run_1 = None
run_2 = None
run_3 = None
run_4 = None
run_5 = None


# %% [solution]
def diagnosis(log):
    """What only this mistake does."""
    reward, kept, prompts, loss, _ = log.unbind(-1)
    if prompts[0] <= 8:
        return "d"
    if (kept - reward).mean() < 0.5:
        return "b"
    if loss[0] > 1.8:
        return "e"
    return "c" if reward.max() - reward.min() < 0.3 else "a"


run_1, run_2, run_3, run_4, run_5 = (diagnosis(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "beecdbedcaadcab"  # whose each of LOGS is


def ask(sub, letter, said):
    """The run that has this letter in truth must have it in the answer."""
    five = TASKS[Draw("11.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"run_{at}", "abcde")
    if got != letter:
        fail(f"`run_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "The mean of what is kept beside the mean of everything: what is their difference if the selection does nothing?",
        "Kept at random, the two differ by chance only, sometimes one way, sometimes the other. Everywhere else `kept` is far above `reward`.",
    ),
)
def by_chance(sub, draw):
    "The control, which keeps replies at random, is found."
    ask(
        sub,
        "b",
        {
            "a": "what it keeps is no better than what it samples",
            "c": "what it keeps is no better than what it samples, which old weights do not explain",
            "d": "along either axis the largest rewards are better than the mean, and here they are not",
            "e": "what it keeps is no better than what it samples; the right replies would be, whatever prompt they are put to",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The matrix has 32 rows and 8 columns. How many replies does each axis give?",
        "The best of each column is the best of 32 replies to 32 prompts: eight replies, of high reward, to eight prompts at most.",
    ),
)
def wrong_axis(sub, draw):
    "The run that keeps the best of each column is found."
    ask(
        sub,
        "d",
        {
            "a": "most prompts have no reply among those that were kept",
            "b": "what it keeps is far above the mean",
            "c": "old weights do not make it forget prompts",
            "e": "most prompts have no reply among those that were kept, so each was not given one, right or wrong",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "How surprised is a model by its own reply, and how surprised by a reply to another question? Look at the first round, before any step.",
        "All runs begin with the same model. One of them has a much larger first `loss` than the others: what it is taught does not fit what it is asked.",
    ),
)
def wrong_prompts(sub, draw):
    "The run that imitates replies to other prompts is found."
    ask(
        sub,
        "e",
        {
            "a": "the model is too surprised by what it is taught, before any step was taken",
            "b": "what it keeps is far above the mean",
            "c": "its samples do change from round to round",
            "d": "all prompts have a reply among those that were kept",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two logs are left, and in one of them nothing moves but the loss. Who wrote its replies?",
        "The model that is trained moves away from the one that samples: `reward` and `kept` stay where they were, and the samples of the old one become more surprising.",
    ),
)
def old_weights(sub, draw):
    "The run that samples from the first model for ever is told from the healthy one, and both are named."
    ask(
        sub,
        "c",
        {
            "a": "its replies are no better after six rounds of imitating the best",
            "b": "what it keeps is far above the mean",
            "d": "all prompts have a reply among those that were kept",
            "e": "its first loss is that of the healthy run: the replies fit their prompts",
        },
    )
    ask(
        sub,
        "a",
        {
            "b": "what it keeps is far above the mean",
            "c": "its replies become better from round to round, so new weights write them",
            "d": "all prompts have a reply among those that were kept",
            "e": "its first loss is not larger than the others': the replies fit their prompts",
        },
    )


# %% [mutant] the control is taken for old weights
# caught by: by_chance
# says: no better than what it samples
run_1, run_2, run_3, run_4, run_5 = ({"b": "c", "c": "b"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the highest kept reward is taken for health
# caught by: wrong_axis
# says: no reply among those
run_1, run_2, run_3, run_4, run_5 = ({"d": "a", "a": "d"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the first loss is not looked at
# caught by: wrong_prompts
# says: too surprised
run_1, run_2, run_3, run_4, run_5 = ({"e": "a", "a": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] what stands still is taken for health
# caught by: old_weights
# says: no better after six rounds
run_1, run_2, run_3, run_4, run_5 = ({"c": "a", "a": "c"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] one letter is used twice
# caught by: old_weights
# says: new weights write them
run_1, run_2, run_3, run_4, run_5 = ({"a": "c"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [partial] 1: the control and the axis are found
run_1, run_2, run_3, run_4, run_5 = (
    {"a": "c", "c": "e", "e": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5)
)
