# ---
# title: Five logs
# kind: choice
# minutes: 20
# ---

# %% [statement]
# Five runs of PPO on language models have eight rollouts each, with four updates per rollout. One run is healthy. Each of the other four has one bug, and none crashed.
# `logs(STUDENT)` has their logs, which we made up after the pattern of real logs. The choice and the order are your own. Each row is a rollout:
#
# * `reward`, mean of the rollout; the best possible is 1;
# * `length`, tokens of a completion on average, at most 64, and `ended`, the fraction of completions that end by themselves;
# * `ratio_1`, the largest $|\log \pi/\pi_\text{old}|$ of any token at the **first** update, before it is made, and `ratio_4` at the last one;
# * `clipped`, the fraction of tokens whose gradient the clip removed, over all four updates;
# * `expl_var`, the explained variance of the critic.
#
# Which log belongs to which run? Answer `run_1`, `run_2`, `run_3`, `run_4` and `run_5` with letters, each used once.
#
# (a) healthy\
# (b) the reward model prefers long completions, and grades a truncated completion like any other\
# (c) sampled at temperature 0.7; the log-probabilities in the update are computed at temperature 1\
# (d) the clipped objective takes the maximum where the minimum belongs\
# (e) the critic's targets belong to the completions of another prompt

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("reward", "length", "ended", "ratio_1", "ratio_4", "clipped", "expl_var")


# Fifteen logs in no order, each eight rows of seven numbers in hundredths, and which five make one task.
LOGS = [
    "33 2414 99 0 121 6 0 21 2457 99 0 253 12 39 18 2589 99 0 373 20 61 13 2744 99 0 501 27 58 12 2889 99 0 641 34 71 10 3019 99 0 766 40 72 5 3032 99 0 880 48 74 2 3226 98 0 1012 55 76",
    "37 2480 100 0 50 6 0 48 3442 94 0 52 6 38 56 4122 84 0 36 6 62 67 4571 72 0 44 6 70 71 5090 57 0 51 6 66 80 5492 42 0 47 6 73 86 5909 23 0 45 6 79 87 6294 5 0 44 6 70",
    "37 2440 99 0 43 6 -14 34 2651 99 0 39 6 -18 44 2780 98 0 52 5 -16 45 2791 100 0 42 5 -17 49 2864 100 0 42 7 -16 52 3080 100 0 38 6 -18 54 3068 99 0 43 6 -19 62 3155 100 0 55 6 -12",
    "36 2331 99 0 131 6 0 21 2535 99 0 256 13 44 19 2624 99 0 373 19 57 12 2711 99 0 503 27 72 11 2861 98 0 640 33 73 9 2953 99 0 761 40 77 7 3155 98 0 885 48 67 3 3235 99 0 1023 56 73",
    "34 2408 100 0 126 6 0 22 2559 100 0 254 12 43 16 2581 100 0 383 18 59 18 2742 99 0 504 27 74 8 2842 99 0 633 34 62 8 2950 99 0 761 40 69 4 3059 99 0 893 48 69 0 3230 99 0 1025 55 76",
    "34 2430 100 0 41 7 0 40 2478 99 0 52 6 41 49 2691 100 0 43 6 55 55 2764 99 0 37 5 64 61 2889 99 0 45 6 73 66 2983 98 0 43 6 81 76 3093 98 0 52 6 73 78 3262 99 0 44 6 75",
    "33 2384 98 0 44 6 0 39 2519 99 0 43 6 32 46 2527 100 0 42 5 58 55 2714 99 0 36 6 61 62 2779 99 0 42 6 66 66 2824 99 0 39 6 71 70 3098 98 0 64 6 71 82 3244 100 0 49 6 73",
    "39 2332 100 0 48 5 -15 37 2451 99 0 38 7 -22 43 2609 100 0 50 6 -17 46 2738 99 0 43 6 -20 46 2742 99 0 34 6 -15 53 2919 99 0 52 7 -18 55 3028 99 0 44 6 -15 62 3064 99 0 34 6 -17",
    "37 2354 99 0 38 5 0 44 3414 93 0 45 6 38 58 3974 85 0 57 7 56 64 4665 72 0 41 6 65 69 4998 58 0 39 7 70 74 5533 41 0 47 6 74 83 5900 23 0 38 7 78 89 6234 4 0 56 6 79",
    "37 2424 98 187 223 34 0 35 2402 99 192 206 34 39 32 2691 98 188 220 35 58 41 2727 98 194 204 35 73 42 2810 100 193 228 35 67 42 2925 98 191 205 34 73 42 3079 99 194 209 35 82 47 3207 99 189 214 34 69",
    "37 2549 99 193 212 33 0 35 2467 97 191 215 34 33 39 2636 100 187 213 34 57 42 2715 100 189 201 34 71 43 2896 98 190 196 35 70 43 2974 99 190 207 34 72 42 3109 99 187 220 34 73 44 3079 99 192 212 33 78",
    "34 2454 98 0 54 6 0 50 3464 93 0 37 7 41 57 3972 83 0 32 5 56 63 4541 72 0 46 6 64 73 4919 59 0 44 5 68 78 5512 41 0 46 7 80 81 5873 23 0 43 6 70 89 6335 4 0 38 6 71",
    "34 2410 99 192 204 36 0 38 2514 99 186 202 33 39 36 2634 99 191 214 35 60 39 2718 98 191 208 35 68 41 2779 100 192 209 34 73 43 2970 100 187 201 34 83 42 3108 99 186 203 34 74 47 3177 99 192 212 34 71",
    "33 2385 99 0 49 6 -15 38 2507 99 0 40 5 -18 40 2591 98 0 36 6 -16 46 2729 99 0 43 5 -19 47 2896 99 0 57 6 -15 54 2973 100 0 47 6 -13 59 3029 98 0 43 6 -13 60 3091 99 0 38 6 -11",
    "35 2336 100 0 39 6 0 39 2524 100 0 57 7 40 48 2708 99 0 49 5 64 53 2707 99 0 49 6 60 60 2901 100 0 50 5 71 68 2994 99 0 46 6 74 73 3112 99 0 35 6 72 81 3312 98 0 48 5 68",
]
TASKS = [
    (2, 12, 6, 4, 8),
    (7, 3, 9, 5, 1),
    (12, 0, 2, 1, 5),
    (10, 3, 8, 2, 5),
    (14, 4, 10, 1, 2),
    (10, 11, 3, 5, 2),
    (8, 2, 4, 14, 10),
    (2, 10, 8, 3, 5),
    (10, 0, 8, 13, 5),
    (14, 11, 3, 13, 12),
    (8, 12, 13, 6, 0),
    (10, 14, 4, 8, 2),
    (10, 14, 3, 7, 1),
    (14, 9, 3, 7, 8),
    (12, 2, 8, 3, 6),
    (12, 3, 5, 8, 7),
    (13, 3, 14, 10, 8),
    (0, 9, 5, 8, 7),
    (2, 5, 12, 4, 11),
    (9, 13, 0, 11, 6),
    (3, 9, 5, 13, 11),
    (6, 0, 10, 8, 13),
    (10, 0, 13, 8, 5),
    (13, 11, 14, 12, 3),
    (4, 14, 2, 8, 10),
    (12, 4, 8, 14, 2),
    (8, 5, 13, 12, 4),
    (0, 6, 9, 13, 1),
    (11, 3, 2, 12, 5),
    (1, 14, 7, 12, 4),
    (7, 5, 10, 3, 11),
    (13, 14, 10, 0, 8),
    (10, 4, 5, 8, 7),
    (0, 8, 13, 14, 10),
    (0, 10, 2, 8, 6),
    (13, 3, 6, 9, 1),
    (5, 11, 7, 0, 12),
    (13, 0, 14, 9, 11),
    (8, 14, 4, 9, 2),
    (0, 10, 14, 8, 13),
]


def logs(student):
    """This student's five logs, (8, 7) each."""
    five = TASKS[Draw("12.4", student).integer(0, len(TASKS) - 1)]
    return [torch.tensor([int(x) for x in LOGS[i].split()], dtype=torch.float64).reshape(8, 7) / 100 for i in five]


# %% [stub]
for number, log in enumerate(logs(STUDENT), 1):
    print(f"run {number}   " + " ".join(f"{name:>8}" for name in COLUMNS))
    for rollout, row in enumerate(log.tolist(), 1):
        print(f"  {rollout}     " + " ".join(f"{x:8.2f}" for x in row))

run_1 = None
run_2 = None
run_3 = None
run_4 = None
run_5 = None


# %% [solution]
def diagnosis(log):
    """What only this bug does."""
    _, _, ended, ratio_1, ratio_4, _, expl_var = log[-1].tolist()
    if ratio_1 > 0.5:
        return "c"
    if ended < 0.5:
        return "b"
    if ratio_4 > 3:
        return "d"
    return "e" if expl_var < 0.2 else "a"


run_1, run_2, run_3, run_4, run_5 = (diagnosis(log) for log in logs(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "dbeddaaebccbcea"  # whose each of LOGS is


def ask(sub, letter, said):
    """Fail unless the run with this letter has it in the answer."""
    five = TASKS[Draw("12.4", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"run_{at}", "abcde")
    if got != letter:
        fail(f"`run_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "At the first update the policy has not moved since it sampled. What must every ratio be?",
        "One log has a first ratio that is not 1, that is, a log-ratio that is not 0. Which of the bugs makes two log-probabilities of the "
        "same token differ although no weight has changed?",
    ),
)
def before_anything_moved(sub, draw):
    "The run whose log-probabilities ignore the temperature is identified."
    ask(
        sub,
        "c",
        {
            "a": "its ratio is not 1 before the first update, when nothing has moved yet",
            "b": "a reward cannot change the ratio: it was wrong before anything was learned",
            "d": "the objective cannot act before the first update, but the ratio is already wrong at that point",
            "e": "the ratio does not depend on the critic",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "One policy has learned to get more reward by writing more. In which columns would you see it?",
        "Completions that grow until they are truncated no longer end by themselves. Look at `length` and `ended`.",
    ),
)
def without_an_end(sub, draw):
    "The run that is rewarded for length is identified."
    ask(
        sub,
        "b",
        {
            "a": "its completions grow until they are truncated",
            "c": "its first ratio is exactly 1, so the log-probabilities agree",
            "d": "its ratios stay moderate; its completions stop ending",
            "e": "a bad critic slows learning; it does not stop completions from ending",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which bug can only show from the second update on?",
        "With the maximum, the clip removes the gradient of tokens that moved too far the wrong way, and keeps it for tokens that move too far the right way. Compare `ratio_1` and `ratio_4`.",
    ),
)
def runs_away(sub, draw):
    "The run that takes the maximum is identified."
    ask(
        sub,
        "d",
        {
            "a": "its ratios explode within a rollout, and its reward collapses",
            "b": "its completions still end by themselves",
            "c": "its first ratio is exactly 1; only later updates go wrong",
            "e": "a bad critic does not drive ratios to thousands",
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Two logs are left. What is explained variance, and what is its value for a critic that predicts a constant?",
        "1 is perfect, 0 is as good as a constant, and negative is worse than a constant. A critic trained on its own prompts' returns gets well above 0.",
    ),
)
def knows_nothing(sub, draw):
    "The run whose critic is trained on other prompts is distinguished from the healthy one."
    ask(
        sub,
        "e",
        {
            "a": "its critic is worse than a constant and does not improve",
            "b": "its completions end by themselves",
            "c": "its first ratio is exactly 1",
            "d": "its ratios stay moderate",
        },
    )


# %% [mutant] temperature and maximum exchanged
# caught by: before_anything_moved
# says: before the first update
run_1, run_2, run_3, run_4, run_5 = ({"c": "d", "d": "c"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the run without an end is taken for healthy
# caught by: without_an_end
# says: until they are truncated
run_1, run_2, run_3, run_4, run_5 = ({"a": "b", "b": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] maximum and critic exchanged
# caught by: runs_away
# says: does not drive ratios
run_1, run_2, run_3, run_4, run_5 = ({"e": "d", "d": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [mutant] the critic is not looked at
# caught by: knows_nothing
# says: worse than a constant
run_1, run_2, run_3, run_4, run_5 = ({"e": "a", "a": "e"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5))

# %% [partial] 1: temperature and mask are found
run_1, run_2, run_3, run_4, run_5 = (
    {"a": "d", "d": "e", "e": "a"}.get(x, x) for x in (run_1, run_2, run_3, run_4, run_5)
)
