# ---
# title: Five logs of rejection sampling
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five runs of rejection sampling on the assistant task of chapter 01, six rounds each: 32 prompts, 8 completions per prompt, ten steps of fine-tuning on the kept completions. All
# logs are real. Four of the runs contain one deliberate mistake each, and no run crashed. `logs(STUDENT)` returns the five logs in an order of your own. Each row is a round:
#
# * `reward`, the mean reward of all 256 sampled completions, and `kept`, the mean reward of the kept ones;
# * `prompts`, the number of prompts, of 32, that have a kept completion;
# * `loss`, nats per token of the kept completions, at the *first* of the ten steps;
# * `length`, the mean number of tokens of a sampled completion.
#
# Which run produced which log? Answer `run_1`, `run_2`, `run_3`, `run_4` and `run_5` with letters, each used once.
#
# (a) correct: the best completion for each prompt is kept\
# (b) the same number of completions is kept at random\
# (c) the inference engine never receives the new weights\
# (d) the best is taken along the wrong axis of the reward matrix\
# (e) each kept completion is imitated with the prompt of another one

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("reward", "kept", "prompts", "loss", "length")


# Fifteen logs in no order, each six rows of five numbers in hundredths (`prompts` as it is), and the five logs of each task.
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
    """Return the letter, by a symptom that only this mistake has."""
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

TRUTH = "beecdbedcaadcab"  # the letter of each of LOGS


def ask(sub, letter, said):
    """Check that the run with this letter has it in the answer."""
    five = TASKS[Draw("11.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"run_{at}", "abcde")
    if got != letter:
        fail(f"`run_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Compare the mean of the kept completions with the mean of all. How large is the difference if the selection has no effect?",
        "With random selection the two differ by chance only, and the sign of the difference changes. In all other runs `kept` is far above `reward`.",
    ),
)
def by_chance(sub, draw):
    "The control, which keeps completions at random, is identified."
    ask(
        sub,
        "b",
        {
            "a": "its kept completions are no better than its samples",
            "c": "its kept completions are no better than its samples, which old weights do not explain",
            "d": "along either axis the maximum is above the mean, but here it is not",
            "e": "its kept completions are no better than its samples; the best completions have higher rewards, whichever prompt they are paired with",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The matrix has 32 rows and 8 columns. How many completions does an arg max along each axis give?",
        "The best of each column is the best of 32 completions for 32 prompts. This gives eight completions with high rewards, for at most eight prompts.",
    ),
)
def wrong_axis(sub, draw):
    "The run that keeps the best of each column is identified."
    ask(
        sub,
        "d",
        {
            "a": "most prompts have no kept completion",
            "b": "its kept completions are far above the mean",
            "c": "old weights do not remove prompts",
            "e": "most prompts have no kept completion; this mistake pairs one with every prompt",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Is the loss of a model's own completion higher or lower than the loss of a completion for another prompt? Look at the first round, before any step.",
        "All runs start from the same model. One of them has a much larger first `loss` than the others, because its completions do not fit their prompts.",
    ),
)
def wrong_prompts(sub, draw):
    "The run that imitates completions for other prompts is identified."
    ask(
        sub,
        "e",
        {
            "a": "its first loss, before any step, is too large for the model's own completions",
            "b": "its kept completions are far above the mean",
            "c": "its samples change from round to round",
            "d": "all prompts have a kept completion",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two logs are left, and in one of them only the loss changes. Which weights wrote its completions?",
        "The trained model moves away from the model that samples. So `reward` and `kept` stay constant, and the loss of the old model's samples under the trained model rises.",
    ),
)
def old_weights(sub, draw):
    "The run that always samples from the first model and the correct run are both identified."
    ask(
        sub,
        "c",
        {
            "a": "its completions are no better after six rounds of imitating the best",
            "b": "its kept completions are far above the mean",
            "d": "all prompts have a kept completion",
            "e": "its first loss equals the first loss of the correct run, so its completions fit their prompts",
        },
    )
    ask(
        sub,
        "a",
        {
            "b": "its kept completions are far above the mean",
            "c": "its completions improve from round to round, so new weights write them",
            "d": "all prompts have a kept completion",
            "e": "its first loss is not larger than in the other runs, so its completions fit their prompts",
        },
    )


# %% [mutant] the control is taken for old weights
# caught by: by_chance
# says: no better than its samples
run_1, run_2, run_3, run_4, run_5 = ({"b": "c", "c": "b"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the highest kept reward is taken for health
# caught by: wrong_axis
# says: have no kept completion
run_1, run_2, run_3, run_4, run_5 = ({"d": "a", "a": "d"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the first loss is not looked at
# caught by: wrong_prompts
# says: is too large
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
