# ---
# title: What counts
# kind: numeric
# minutes: 6
# ---

# %% [statement]
# A conversation has several turns. In your template every message begins with three tokens that name its speaker. Then come its words, one closing token and one line
# break. `messages(STUDENT)` gives you the speakers and the numbers of their words' tokens, in order. The assistant speaks last.
#
# 1. `counted`: the number of tokens of the whole conversation that belong to the loss.
# 2. `asked`: the number of tokens of the prompt when the model is asked for the *last* completion.
# 3. `unrolled`: the total number of tokens if every turn of the assistant gets its own row. The row begins with the conversation and is cut after the last token of this turn that belongs to the loss.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def messages(student):
    """A list of (speaker, tokens of words)."""
    draw = Draw("10.1", student)
    turns = [("system", draw.integer(11, 19))]
    for _ in range(draw.integer(3, 4)):
        turns += [("user", draw.integer(21, 40)), ("assistant", draw.integer(41, 90))]
    return turns


# %% [stub]
print(*messages(STUDENT), sep="\n")

counted = None
asked = None
unrolled = None

# %% [solution]
sizes = [words + 5 for _, words in messages(STUDENT)]
replies = [i for i, (speaker, _) in enumerate(messages(STUDENT)) if speaker == "assistant"]
counted = sum(messages(STUDENT)[i][1] + 1 for i in replies)
asked = sum(sizes[:-1]) + 3
unrolled = sum(sum(sizes[: i + 1]) - 1 for i in replies)

# %% [tests]
from minirlhf_course.classroom.testing import expect, test
from minirlhf_course.ledger.registry import Draw


def conversation(student):
    draw = Draw("10.1", student)
    turns = [("system", draw.integer(11, 19))]
    for _ in range(draw.integer(3, 4)):
        turns += [("user", draw.integer(21, 40)), ("assistant", draw.integer(41, 90))]
    return turns


def written(turns):
    """The tokens of a conversation, each as (what it is, whose)."""
    kinds = lambda words: ["announce"] * 3 + ["word"] * words + ["close", "break"]
    return [(kind, speaker) for speaker, words in turns for kind in kinds(words)]


def marked(turns, kinds=("word", "close")):
    return [i for i, (kind, speaker) in enumerate(written(turns)) if speaker == "assistant" and kind in kinds]


@test(
    points=1,
    hints=(
        "Go through one message of the assistant token by token. What does the model learn from each of them?",
        "Its words and its closing token count, in every turn of the assistant. The tokens that name the speaker are part of the prompt, and the line break comes from the template.",
    ),
)
def counts(sub, draw):
    "`counted` has the assistant's words and closing tokens."
    turns = conversation(sub.student)
    last = turns[-1][1] + 1
    expect(
        sub.number("counted"),
        float(len(marked(turns))),
        reveal=False,
        mistakes={
            "the closing token is left out; without it the model never learns to stop": float(
                len(marked(turns, ("word",)))
            ),
            "the line break after the closing token is counted, but it comes from the template": float(
                len(marked(turns, ("word", "close", "break")))
            ),
            "the tokens that name the assistant are counted, but the template writes them": float(
                len(marked(turns, ("announce", "word", "close")))
            ),
            "every turn of the assistant counts, not the last one only": float(last),
            "the words of the system and the user are counted, but they are context": float(len(written(turns))),
        },
    )


@test(
    points=1,
    hints=(
        "The prompt must equal the training row up to the token before the first one that counts.",
        "It has all messages before the last, and the three tokens that name the assistant.",
    ),
)
def prompt(sub, draw):
    "`asked` ends where the assistant's last completion begins."
    turns = conversation(sub.student)
    before = len(written(turns[:-1]))
    first = next(i for i in marked(turns) if i >= before)
    expect(
        sub.number("asked"),
        float(first),
        reveal=False,
        mistakes={
            "the generation prompt is missing": float(before),
            "the first turns are left out of the prompt": float(len(written(turns[-2:-1])) + 3),
        },
    )


@test(
    points=2,
    hints=(
        "How long is the first row? The second row contains it, and more.",
        "Row k is everything up to the closing token of the assistant's turn k. Sum the lengths of these rows.",
    ),
)
def rows(sub, draw):
    "`unrolled` is the sum of the lengths of the rows."
    turns = conversation(sub.student)
    places = marked(turns)
    ends = [i for i in places if i + 1 not in places]
    whole = float(len(written(turns)))
    expect(
        sub.number("unrolled"),
        float(sum(end + 1 for end in ends)),
        reveal=False,
        mistakes={
            "it is one row of the whole conversation, not one row for each turn": whole,
            "no row is cut after its own turn": whole * len(ends),
            "the line break after the closing token is counted": float(sum(end + 2 for end in ends)),
        },
    )


# %% [mutant] the end is not in the loss
# caught by: counts
# says: never learns to stop
counted = sum(words for speaker, words in messages(STUDENT) if speaker == "assistant")

# %% [mutant] the last turn only
# caught by: counts
# says: not the last one only
counted = messages(STUDENT)[-1][1] + 1

# %% [mutant] no generation prompt
# caught by: prompt
# says: generation prompt
asked = sum(words + 5 for _, words in messages(STUDENT)[:-1])

# %% [mutant] the whole conversation in every row
# caught by: rows
# says: cut after its own turn
unrolled = sum(words + 5 for _, words in messages(STUDENT)) * sum(s == "assistant" for s, _ in messages(STUDENT))

# %% [partial] 2: one row
unrolled = sum(words + 5 for _, words in messages(STUDENT))
