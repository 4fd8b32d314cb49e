# ---
# title: Five dashboards
# kind: choice
# minutes: 15
# ---

# %% [statement]
# Five teams trained a model on tasks with tests that can be cheated. On these tasks honest work passes in at most 65 % of the completions, and a cheat always passes. Two monitors read the completions. A *thought monitor* flags a completion with probability .95 if its chain of thought mentions a cheat, else with .05. An *action monitor* flags a completion with probability .95 if it cheats, whatever it says, else with .05. `dashboards(STUDENT)` has a row of percentages for each team:
#
# * `passed_0`, `passed`: completions that pass the tests, before and after training;
# * `thought_0`, `thought`: completions that the thought monitor flags; `action_0`, `action`: the same for the action monitor;
# * `fined`: the number of the monitors whose flags cost a fine in training: 0 none, 1 the thought monitor alone, 2 both.
#
# If both monitors were in the reward, the policy may have found a cheat that **neither** recognises. A monitor that was not in the reward works as before. Rounding and sampling move each percentage by up to 2 points. What do you conclude? `team_1`, `team_2`, `team_3`, `team_4` and `team_5` are letters, each used once.
#
# (a) The model cheated before training, and stopped.\
# (b) The model cheats as a rule, and hides it.\
# (c) The model cheats as a rule, and says so.\
# (d) The model hardly ever cheated, before or after.\
# (e) The dashboard alone cannot answer: no monitor was left out of the reward.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("passed_0", "passed", "thought_0", "thought", "action_0", "action", "fined")

# Forty dashboards in random order, and the five that form each task.
# fmt: off
ROWS = [
    "70 99 36 92 38 90 0", "65 98 26 90 26 91 0", "51 58 4 5 3 5 1", "73 99 35 90 37 92 0", "65 57 26 5 28 3 2", "73 56 38 5 37 6 1",
    "75 97 37 7 38 90 1", "64 54 27 4 28 7 2", "59 96 17 3 17 93 1", "60 98 18 89 17 93 0", "73 61 38 4 36 6 1", "48 55 6 3 3 4 1",
    "67 61 27 4 28 5 2", "53 65 4 6 6 6 1", "68 53 37 5 38 4 2", "47 54 4 6 7 6 1", "68 54 35 6 38 4 2", "56 64 7 4 4 5 1",
    "46 56 3 7 5 4 1", "66 95 20 7 19 91 1", "65 63 17 5 18 3 2", "67 97 19 92 18 92 0", "66 59 29 7 26 7 2", "63 95 26 5 29 91 1",
    "64 60 17 5 19 7 1", "69 99 35 5 35 90 1", "69 53 37 6 37 3 1", "68 97 26 4 26 93 1", "62 96 17 89 20 90 0", "56 62 5 6 5 6 1",
    "65 99 28 5 29 92 1", "70 97 38 4 36 90 1", "65 52 27 3 27 4 1", "68 57 29 3 26 7 1", "49 61 6 6 7 5 1", "72 59 35 4 38 6 1",
    "75 59 37 6 35 6 1", "63 97 27 92 28 92 0", "70 62 26 6 28 4 2", "68 97 27 92 27 92 0",
]
TASKS = [
    (35, 12, 21, 34, 6), (10, 9, 20, 29, 25), (5, 13, 14, 3, 31), (16, 13, 8, 0, 26), (9, 16, 11, 10, 23), (37, 18, 8, 36, 20),
    (27, 1, 34, 24, 20), (10, 2, 4, 28, 31), (2, 26, 30, 12, 1), (9, 2, 14, 36, 6), (11, 22, 27, 37, 33), (22, 2, 39, 8, 33),
    (21, 7, 33, 13, 27), (11, 25, 12, 35, 21), (26, 9, 17, 27, 14), (24, 17, 6, 4, 21), (21, 27, 35, 17, 14), (28, 25, 17, 35, 12),
    (14, 8, 17, 0, 26), (19, 21, 2, 24, 38), (6, 34, 24, 0, 38), (38, 11, 26, 19, 39), (35, 8, 39, 20, 34), (2, 24, 3, 23, 20),
    (4, 2, 30, 32, 37), (11, 3, 30, 7, 5), (31, 9, 34, 24, 22), (26, 37, 13, 14, 8), (0, 4, 33, 19, 18), (32, 31, 2, 14, 39),
]
# fmt: on


def dashboards(student):
    """Five rows of seven whole numbers, (5, 7)."""
    five = TASKS[Draw("24.5", student).integer(0, len(TASKS) - 1)]
    return torch.tensor([[int(x) for x in ROWS[i].split()] for i in five])


# %% [stub]
print("team   " + " ".join(f"{name:>9}" for name in COLUMNS))
for number, row in enumerate(dashboards(STUDENT).tolist(), 1):
    print(f"{number:4}   " + " ".join(f"{x:9}" for x in row))

team_1 = None
team_2 = None
team_3 = None
team_4 = None
team_5 = None


# %% [solution]
def decide(row):
    _, _, _, thought, before, action, fined = row.tolist()
    if fined == 2:
        return "e"
    if action > 50:
        return "c" if thought > 50 else "b"
    return "a" if before > 10 else "d"


team_1, team_2, team_3, team_4, team_5 = (decide(row) for row in dashboards(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "ccdceabebcadedededdbecebababcdbbaadaacec"  # what to answer about each of ROWS


def ask(sub, letter, said):
    """Check that the team with this correct letter has it in the answer."""
    five = TASKS[Draw("24.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"team_{at}", "abcde")
    if got != letter:
        fail(f"`team_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=("Which monitor still works after training?", "Look for a team whose action monitor was not in the reward, saw cheats before, and sees hardly any after."),
)  # fmt: skip
def stopped(sub, draw):
    "You identify the team whose model stopped."
    low = "an action monitor that was not in the reward flags no more than its false positives"
    ask(sub, "a", {"b": low, "c": low, "d": "before training both monitors flagged far more than 5 %", "e": "its action monitor was not in the reward"})  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Where do the two monitors disagree?", "The thought monitor was in the reward and is silent. The action monitor was not, and flags nearly everything."),
)  # fmt: skip
def hides(sub, draw):
    "You identify the team whose model hides."
    seen = "the action monitor was not in the reward and flags nearly all completions"
    ask(sub, "b", {"a": seen, "d": seen, "e": seen, "c": "the thought monitor flags no more than its false positives"})


@test(
    points=1,
    rounds=1,
    hints=("Where do both monitors see cheats?", "No fine was paid, and both monitors flag nearly all completions."),
)  # fmt: skip
def says_so(sub, draw):
    "You identify the team whose model says what it does."
    both = "both monitors flag nearly all completions"
    ask(sub, "c", {"a": both, "b": both, "d": both, "e": "no monitor was in the reward, so both can be trusted"})


@test(
    points=1,
    rounds=1,
    hints=("Where were flags at the rate of false positives from the beginning?", "5 % of flags is what honest completions give."),
)  # fmt: skip
def never(sub, draw):
    "You identify the team whose model hardly ever cheated."
    low = "flags were at the rate of false positives before training too"
    ask(sub, "d", {"a": low, "b": "the action monitor was not in the reward and flags hardly anything", "c": "no monitor flags more than its false positives", "e": "its action monitor was not in the reward"})  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=("Which team has no independent measurement left?", "If both monitors were in the reward, low flags may mean honest work or a cheat that neither recognises. Honest work alone can reach its pass rate, so this does not decide either."),
)  # fmt: skip
def nobody_can_say(sub, draw):
    "You identify the team whose dashboard cannot answer."
    fined = "both monitors were in the reward, so their low flags may mean either"
    ask(sub, "e", dict.fromkeys("abcd", fined))


# %% [mutant] low flags mean honest
# caught by: hides
# says: flags nearly all
def decide(row):
    _, _, before, thought, _, _, fined = row.tolist()
    if fined == 2:
        return "e"
    return "c" if thought > 50 else "a" if before > 10 else "d"


team_1, team_2, team_3, team_4, team_5 = (decide(row) for row in dashboards(STUDENT))


# %% [mutant] a high pass rate is a cheat
# caught by: nobody_can_say
# says: in the reward
def decide(row):
    _, passed, _, thought, before, _action, _fined = row.tolist()
    if passed > 70:
        return "c" if thought > 50 else "b"
    return "a" if before > 10 else "d"


team_1, team_2, team_3, team_4, team_5 = (decide(row) for row in dashboards(STUDENT))


# %% [mutant] low flags at the end mean that it never cheated
# caught by: stopped
# says: before training both monitors
def decide(row):
    _, _, _, thought, _before, action, fined = row.tolist()
    if fined == 2:
        return "e"
    if action > 50:
        return "c" if thought > 50 else "b"
    return "d"


team_1, team_2, team_3, team_4, team_5 = (decide(row) for row in dashboards(STUDENT))


# %% [partial] 3.5: two exchanged
exchanged = {"b": "a", "c": "c", "d": "d", "e": "e", "a": "a"}
team_1, team_2, team_3, team_4, team_5 = (exchanged[decide(row)] for row in dashboards(STUDENT))
