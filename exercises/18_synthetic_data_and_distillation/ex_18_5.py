# ---
# title: Five students
# kind: choice
# minutes: 15
# ---

# %% [statement]
# The chapter's toy task has three sayings, and each of the five students has seen 25,600 of them. The teacher's favourite saying makes up half of its output, and .965 of its output is clean: the closer fits the opener. `students(STUDENT)` has five students in
# an order of your own. All numbers come from ten seeds. Each row is a student:
#
# * `clean`, the fraction of its sayings that are clean, and `commonest`, the fraction of its most frequent clean saying;
# * `forward`, KL(teacher‖student), and `reverse`, KL(student‖teacher), of whole sayings, in nats.
#
# Which row is which student? Answer `student_1`, `student_2`, `student_3`, `student_4` and `student_5` with letters, each used once.
#
# (a) sees the whole prefix; learned from the teacher's *distributions* along fifty sayings, many times\
# (b) cannot see the opener; learned from the teacher's distributions along the teacher's sayings (forward KL)\
# (c) cannot see the opener; reverse KL on its own sayings, word by word\
# (d) cannot see the opener; the same, and each word gets credit for later words\
# (e) sees the whole prefix; learned from the *words* of fifty sayings, many times

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

COLUMNS = ("clean", "commonest", "forward", "reverse")


# Fifty students in no order, each four numbers in thousandths, and which five make one task.
# fmt: off
ROWS = [
    "946 505 238 255", "945 599 4843 915", "369 242 945 2165", "951 475 65 116", "389 322 1117 2008",
    "387 319 1110 2007", "947 558 206 229", "986 528 142 140", "945 672 5443 1050", "953 487 190 235",
    "957 957 4207 692", "950 475 60 112", "952 595 5104 916", "955 454 158 161", "364 236 955 2193",
    "391 327 1129 2012", "884 441 305 458", "372 248 947 2154", "947 673 5205 1044", "390 324 1123 2010",
    "919 418 196 378", "368 242 947 2172", "369 241 948 2171", "371 246 946 2161", "375 296 1078 2010",
    "386 318 1105 2007", "953 477 57 107", "950 475 54 94", "966 517 271 261", "952 476 61 111",
    "960 960 4354 691", "951 475 59 109", "948 590 4952 913", "952 476 41 73", "944 684 5076 1041",
    "371 247 946 2159", "922 517 160 256", "956 956 4184 691", "950 475 58 106", "963 573 204 199",
    "383 311 1098 2009", "951 476 47 81", "364 230 947 2186", "384 310 1106 2010", "953 477 51 91",
    "372 248 945 2156", "963 963 4559 694", "379 307 1098 2016", "384 316 1106 2010", "370 239 949 2169",
]
TASKS = [
    (24, 41, 34, 14, 39), (21, 27, 40, 10, 20), (24, 49, 27, 37, 16), (34, 6, 15, 26, 42), (37, 36, 48, 35, 27),
    (38, 40, 20, 35, 10), (39, 31, 30, 17, 25), (39, 35, 15, 44, 10), (41, 4, 14, 13, 46), (10, 33, 17, 7, 19),
    (47, 11, 10, 36, 23), (10, 49, 13, 19, 26), (31, 16, 48, 18, 14), (13, 35, 47, 41, 1), (12, 13, 33, 5, 22),
    (14, 25, 36, 11, 18), (38, 23, 9, 8, 15), (1, 43, 33, 36, 22), (46, 0, 33, 23, 5), (12, 2, 28, 31, 15),
    (41, 7, 24, 17, 32), (46, 2, 47, 38, 16), (1, 48, 29, 22, 9), (19, 32, 29, 21, 6), (43, 28, 41, 21, 8),
    (31, 7, 40, 18, 22), (45, 30, 24, 9, 41), (13, 33, 34, 14, 5), (15, 16, 23, 30, 11), (19, 3, 12, 22, 7),
    (10, 36, 3, 49, 4), (26, 23, 37, 24, 16), (29, 28, 22, 12, 25), (24, 41, 7, 34, 14), (38, 34, 22, 7, 19),
    (12, 42, 24, 29, 13), (37, 35, 39, 4, 27), (14, 33, 16, 40, 46), (39, 47, 32, 33, 22), (44, 45, 13, 40, 30),
]
# fmt: on


def students(student):
    """Five rows of four numbers, (5, 4)."""
    five = TASKS[Draw("18.5", student).integer(0, len(TASKS) - 1)]
    return torch.tensor([[int(x) / 1000 for x in ROWS[i].split()] for i in five], dtype=torch.float64)


# %% [stub]
print("student   " + " ".join(f"{name:>9}" for name in COLUMNS))
for number, row in enumerate(students(STUDENT).tolist(), 1):
    print(f"{number:7}   " + " ".join(f"{x:9.3f}" for x in row))

student_1 = None
student_2 = None
student_3 = None
student_4 = None
student_5 = None


# %% [solution]
def who(row):
    clean, _, forward, reverse = row.tolist()
    if forward > 3:
        return "d"
    if clean > 0.7:
        return "a" if reverse < 0.125 else "e"
    return "b" if forward < 1.02 else "c"


student_1, student_2, student_3, student_4, student_5 = (who(row) for row in students(STUDENT))

# %% [tests]
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.ledger.registry import Draw

TRUTH = "edbacceededadebcebdcebbbccaaeadadadbedaecabcabdccb"  # who each of ROWS is


def ask(sub, letter, said):
    """The student that has this letter in truth must have it in the answer."""
    five = TASKS[Draw("18.5", sub.student).integer(0, len(TASKS) - 1)]
    at = [TRUTH[i] for i in five].index(letter) + 1
    got = sub.choice(f"student_{at}", "abcde")
    if got != letter:
        fail(f"`student_{at}` is not {got!r}: {said[got]}")


@test(
    points=1,
    rounds=1,
    hints=(
        "Which student can say clean sayings without knowing the opener?",
        "A student that gives up all sayings except one or two. What happens to the forward KL?",
    ),
)
def decided(sub, draw):
    "The student with credit for later words is identified."
    loses = "it has given up most of what the teacher says, so its forward KL is large, and yet it is clean"
    ask(sub, "d", dict.fromkeys("abce", loses))


@test(
    points=1,
    rounds=1,
    hints=(
        "Two of the students that cannot see the opener are similar. Which divergence did each of them minimise?",
        "Compare both columns of the two students: each has the lower value of its own divergence.",
    ),
)
def covers(sub, draw):
    "The student of the forward KL is identified."
    unclean = "a student that remembers the opener says clean sayings"
    ask(
        sub, "b",
        {
            "a": unclean, "e": unclean, "d": "its sayings are not clean, so nothing has made it decide",
            "c": "of the two that mix, it has the smaller forward KL and the larger reverse one",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "Does a comparison word by word on its own sayings make a student clean?",
        "Of the two students that mix, it has the smaller reverse KL.",
    ),
)
def seeks(sub, draw):
    "The student of the reverse KL, word by word, is identified."
    unclean = "a student that remembers the opener says clean sayings"
    ask(
        sub, "c",
        {
            "a": unclean, "e": unclean, "d": "its sayings are not clean, so nothing has made it decide",
            "b": "of the two that mix, it has the larger forward KL and the smaller reverse one",
        },
    )  # fmt: skip


@test(
    points=1,
    rounds=1,
    hints=(
        "What does a distribution over eight words contain that one word does not?",
        "Two students are close to the teacher. The student that learned from distributions is closer, by both divergences together.",
    ),
)
def taught_by_words(sub, draw):
    "The student of fifty texts is identified."
    ask(
        sub, "e",
        {
            "a": "another student is closer to the teacher, and this one has seen less",
            "b": "it is clean and has both divergences small, so it knows the opener", "c": "it is clean and has both divergences small, so it knows the opener",
            "d": "its forward KL is small: it has given up nothing",
        },
    )  # fmt: skip


# %% [mutant] those that mix exchanged
# caught by: covers
# says: smaller forward KL
def swapped(row):
    return {"b": "c", "c": "b"}.get(who(row), who(row))


def who(row):
    clean, _, forward, reverse = row.tolist()
    if forward > 3:
        return "d"
    if clean > 0.7:
        return "a" if reverse < 0.125 else "e"
    return "b" if forward < 1.02 else "c"


student_1, student_2, student_3, student_4, student_5 = (swapped(row) for row in students(STUDENT))


# %% [mutant] the cleanest has learned from distributions
# caught by: taught_by_words
def who(row):
    clean, _, forward, reverse = row.tolist()
    if forward > 3:
        return "d"
    if clean > 0.7:
        return "a" if reverse > 0.125 else "e"
    return "b" if forward < 1.02 else "c"


student_1, student_2, student_3, student_4, student_5 = (who(row) for row in students(STUDENT))


# %% [mutant] a large forward KL is taken for the forward KL's
# caught by: decided
def who(row):
    clean, _, forward, reverse = row.tolist()
    if forward > 3:
        return "b"
    if clean > 0.7:
        return "a" if reverse < 0.125 else "e"
    return "d" if forward < 1.02 else "c"


student_1, student_2, student_3, student_4, student_5 = (who(row) for row in students(STUDENT))


# %% [partial] 1: those that are unlike the others
def who(row):
    clean, _, forward, reverse = row.tolist()
    if forward > 3:
        return "d"
    return "e" if clean > 0.7 and reverse > 0.125 else "a"


student_1, student_2, student_3, student_4, student_5 = (who(row) for row in students(STUDENT))
