# ---
# title: Bug hunt: the liar wins
# kind: bughunt
# minutes: 20
# ---

# %% [statement]
# The code below solves the debate of the chapter: OR at the root, then AND, OR, …; the judge reads one leaf. `tried` compares it with what must hold. **Truth does not win with two perfect debaters. A judge who misreads one leaf in ten is right far less often than .9. And a worse liar wins more.**
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `root(leaves)`: the value of the root, `(..., N)` bits → `(...)`. N is 4, 16, 64, …
# * `read(leaves, truth, misread)`: the probability that the honest debater wins if the judge reads this leaf, `(..., N)`. The judge reads each leaf wrongly with probability `misread`. `truth` is `(...)`.
# * `turn(first, second, chooses, honest, liar)`: the probability that the honest debater wins from a node, from the probabilities of its two children. If `chooses` is True, the honest debater takes the child that is better for it with probability `honest`, else the other. If not, the liar takes the child that is better for the liar with probability `liar`.

# %% [given]
import torch


def value(leaves, honest=1.0, liar=1.0, misread=0.0):
    """Return the probability that the honest debater wins, (..., N) bits → (...)."""
    truth = root(leaves)
    wins, level = read(leaves, truth, misread), (leaves.shape[-1]).bit_length() - 1
    while wins.shape[-1] > 1:
        level -= 1
        chooses = (truth == 1) if level % 2 == 0 else (truth == 0)
        wins = turn(wins[..., ::2], wins[..., 1::2], chooses[..., None], honest, liar)
    return wins[..., 0]


def tried():
    """Print what must hold beside what holds."""
    inputs = (torch.arange(65536)[:, None] >> torch.arange(16) & 1).double()
    print("root true on", int(root(inputs).sum()), "of 65,536 inputs; it should be 22,687")
    print("perfect debaters:", float(value(inputs).mean()), "should be 1.0")
    print("a judge who misreads one in ten:", float(value(inputs, misread=0.1).mean()), "should be 0.9")
    print(
        "liars of skill 1 and ½:",
        *(round(float(value(inputs, 0.8, liar).mean()), 3) for liar in (1.0, 0.5)),
        "should grow",
    )


# %% [stub]
def root(leaves):
    """(..., N) bits → (...)."""
    values = leaves
    while values.shape[-1] > 1:
        first, second = values[..., ::2], values[..., 1::2]
        level = leaves.shape[-1] // values.shape[-1]  # 1 for the leaves, 2, 4, …
        values = torch.maximum(first, second) if level % 2 else torch.minimum(first, second)
    return values[..., 0]


def read(leaves, truth, misread):
    """leaves: (..., N), truth: (...). Returns (..., N)."""
    right = (leaves == truth[..., None]).double()
    return right * (1 - misread)


def turn(first, second, chooses, honest, liar):
    """first, second: (..., n); chooses: (..., 1) boolean. Returns (..., n)."""
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    own = honest * better + (1 - honest) * worse
    other = liar * better + (1 - liar) * worse
    return torch.where(chooses, own, other)


# %% [solution]
def root(leaves):
    values, is_or = leaves, False  # the root is an OR and the depth is even, so the last level is an AND
    while values.shape[-1] > 1:
        first, second = values[..., ::2], values[..., 1::2]
        values = torch.maximum(first, second) if is_or else torch.minimum(first, second)
        is_or = not is_or
    return values[..., 0]


def read(leaves, truth, misread):
    right = (leaves == truth[..., None]).double()
    return right * (1 - misread) + (1 - right) * misread


def turn(first, second, chooses, honest, liar):
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    own = honest * better + (1 - honest) * worse
    other = liar * worse + (1 - liar) * better
    return torch.where(chooses, own, other)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def by_definition(bits, level=0):
    """Return the value of a list of bits, recursively from the root."""
    if len(bits) == 1:
        return bits[0]
    half = len(bits) // 2
    two = by_definition(bits[:half], level + 1), by_definition(bits[half:], level + 1)
    return min(two) if level % 2 else max(two)


def folded(bits, kinds):
    """Return the value if the levels, from the leaves up, are these functions."""
    for kind in kinds:
        bits = [kind(bits[k], bits[k + 1]) for k in range(0, len(bits), 2)]
    return bits[0]


@test(
    points=2,
    hints=("Which operation joins two leaves, if the root is an OR and the depth is even?", "AND joins leaves, OR joins these, and so on. Count levels, not leaves."),
    against="the definition, from the root",
)  # fmt: skip
def values_of_the_root(sub, draw):
    "`root` alternates OR and AND, with OR at the root."
    for size in (4, 16, 64, 256):
        leaves = (draw.uniform(40, size) < 0.55).double()
        rows = leaves.tolist()
        want = torch.tensor([by_definition(row) for row in rows], dtype=torch.float64)
        depth = size.bit_length() - 1
        known = {
            "every level above the leaves' is an AND": [max] + [min] * (depth - 1),
            "OR and AND are exchanged: the root is an AND": [max, min] * (depth // 2),
            "every level is an OR": [max] * depth,
            "every level is an AND": [min] * depth,
        }
        expect(
            sub.root(leaves), want, what="`root`", given={"leaves": leaves[:2]},
            mistakes={
                say: x
                for say, kinds in known.items()
                if not torch.equal(x := torch.tensor([folded(row, kinds) for row in rows], dtype=torch.float64), want)
            },
        )  # fmt: skip
        expect(sub.root(leaves[0]), want[0], what="`root` of one input, `(N,)`,", given={"leaves": leaves[0]})
        expect(sub.root(leaves.reshape(4, 10, size)), want.reshape(4, 10), what="`root` of `(4, 10, N)` leaves")


@test(
    points=2,
    hints=("When does the honest debater win although the leaf contradicts its claim?", "If the judge misreads a wrong leaf, the honest debater wins: with probability `misread`."),
    against="leaf by leaf",
)  # fmt: skip
def the_judge(sub, draw):
    "`read` is the probability at each leaf that the honest debater wins."
    leaves = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])[:, draw.permutation(4)].double()
    truth = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for eta in (float(tidy(draw.uniform(1, low=0.05, high=0.45))), float(tidy(draw.uniform(1, low=0.55, high=0.95)))):
        want = torch.tensor(
            [[1 - eta if bit == right else eta for bit in row] for row, right in zip(leaves.tolist(), truth.tolist(), strict=True)],
            dtype=torch.float64,
        )  # fmt: skip
        right = (leaves == truth[:, None]).double()
        expect(
            sub.read(leaves, truth, eta), want, what="`read`", given={"leaves": leaves, "truth": truth, "misread": eta},
            mistakes={
                "a misread leaf always counts against the honest debater": right * (1 - eta),
                "it is the probability that the liar wins": 1 - want,
                "it is the probability that a leaf is read as 1": torch.where(leaves == 1, 1 - eta, eta),
                "the judge's errors are missing": right,
            },
        )  # fmt: skip
        expect(
            sub.read(leaves[0], truth[0], eta),
            want[0],
            what="`read` of one input, `(N,)`,",
            given={"leaves": leaves[0]},
        )
        both = sub.read(leaves.expand(3, 2, 4), truth.expand(3, 2), eta)
        expect(both, want.expand(3, 2, 4), what="`read` of `(3, 2, N)` leaves")
    more = (draw.uniform(3, 16) < 0.5).double()
    want = torch.where(more == truth[[0, 1, 0], None], 0.75, 0.25)
    expect(sub.aside.read(more, truth[[0, 1, 0]], 0.25), want, what="`read` of sixteen leaves", given={"leaves": more})


@test(
    points=2,
    hints=("Which child is better for the liar?", "The one from which the honest debater wins less often."),
    against="node by node",
)  # fmt: skip
def whose_turn(sub, draw):
    "`turn` lets each debater choose for itself."
    chooses = torch.tensor([[True], [False], [False]])
    skills = tidy(draw.uniform(2, 2, low=0.05, high=0.45)) + torch.tensor([[0.5], [0.0]])  # above chance, then below
    for honest, liar in skills.tolist():
        chosen(sub, draw, chooses, honest, liar)
    chosen(sub, draw, torch.tensor([[False], [True], [True], [False]]), 1.0, 0.0, width=4)


def chosen(sub, draw, chooses, honest, liar, width=2):
    """Compare the probabilities before a turn with the definition, node by node, also for one input and for a batch of batches."""
    first, second = (tidy(draw.uniform(len(chooses), width)) for _ in range(2))
    rows = []
    for k in range(len(chooses)):
        row = []
        for a, b in zip(first[k].tolist(), second[k].tolist(), strict=True):
            skill, mine, others = (honest, max(a, b), min(a, b)) if bool(chooses[k]) else (liar, min(a, b), max(a, b))
            row.append(skill * mine + (1 - skill) * others)
        rows.append(row)
    want = torch.tensor(rows, dtype=torch.float64)
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    own = honest * better + (1 - honest) * worse
    mixed = lambda q: q * worse + (1 - q) * better
    expect(
        sub.turn(first, second, chooses, honest, liar), want, what="`turn`",
        given={"first": first, "second": second, "chooses": chooses.int(), "honest": honest, "liar": liar},
        mistakes={
            "the liar chooses what is better for the honest debater": torch.where(chooses, own, liar * better + (1 - liar) * worse),
            "the liar has the honest debater's skill": torch.where(chooses, own, mixed(honest)),
            "the honest debater chooses at every node": own,
            "the turns are exchanged": torch.where(chooses, mixed(liar), own),
        },
    )  # fmt: skip
    expect(sub.turn(first[0], second[0], chooses[0], honest, liar), want[0], what="`turn` of one input, `(n,)`,")
    batch = sub.turn(first[None], second[None], chooses[None], honest, liar)
    expect(batch, want[None], what="`turn` of `(1, B, n)` probabilities")


# %% [picture]
import torch


def picture(sub):
    """Plot the accuracy of the judge against the skill of the liar."""
    skills = torch.linspace(0.5, 1, 11, dtype=torch.float64)
    # Every seventeenth input: an even stride would fix leaves.
    inputs = (torch.arange(0, 65536, 17)[:, None] >> torch.arange(16) & 1).double()

    def curve(root, read, turn):
        found = []
        for liar in skills.tolist():
            truth = root(inputs)
            wins, level = read(inputs, truth, 0.0), 4
            while wins.shape[-1] > 1:
                level -= 1
                chooses = (truth == 1) if level % 2 == 0 else (truth == 0)
                wins = turn(wins[..., ::2], wins[..., 1::2], chooses[..., None], 0.8, liar)
            found.append(float(wins.mean()))
        return torch.tensor(found, dtype=torch.float64)

    def root(leaves):
        values, is_or = leaves, False
        while values.shape[-1] > 1:
            pair = values[..., ::2], values[..., 1::2]
            values, is_or = (torch.maximum(*pair) if is_or else torch.minimum(*pair)), not is_or
        return values[..., 0]

    def turn(first, second, chooses, honest, liar):
        better, worse = torch.maximum(first, second), torch.minimum(first, second)
        return torch.where(chooses, honest * better + (1 - honest) * worse, liar * worse + (1 - liar) * better)

    right = curve(root, lambda leaves, truth, misread: (leaves == truth[..., None]).double(), turn)
    return Picture(
        "A better liar must win more often.",
        (Panel("accuracy of the judge", skills, curve(sub.root, sub.read, sub.turn), right, "skill of the liar", "accuracy"),),
    )  # fmt: skip


# %% [edges]
# values_of_the_root: (..., N)
# values_of_the_root: N is 4, 16, 64, …
# the_judge: with probability `misread`
# whose_turn: (..., n)


# %% [probes]
# no gradient, integers, float32, values, size, keywords, nan: bits and probabilities of a game


# %% [shared]
# 0.1, 0.8: settings of the demonstration; the tests draw their own


# %% [mutant] the root is an AND
# caught by: values_of_the_root
# says: the root is an AND
def root(leaves):
    values, is_or = leaves, True
    while values.shape[-1] > 1:
        pair = values[..., ::2], values[..., 1::2]
        values, is_or = (torch.maximum(*pair) if is_or else torch.minimum(*pair)), not is_or
    return values[..., 0]


# %% [mutant] the chance of the liar
# caught by: the_judge
# says: chance of the liar
def read(leaves, truth, misread):
    right = (leaves == truth[..., None]).double()
    return right * misread + (1 - right) * (1 - misread)


# %% [mutant] one skill
# caught by: whose_turn
# says: honest debater's skill
def turn(first, second, chooses, honest, liar):
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    return torch.where(chooses, honest * better + (1 - honest) * worse, honest * worse + (1 - honest) * better)


# %% [mutant] exchanged turns
# caught by: whose_turn
# says: turns are exchanged
def turn(first, second, chooses, honest, liar):
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    return torch.where(chooses, liar * worse + (1 - liar) * better, honest * better + (1 - honest) * worse)


# %% [partial] 4: without the turns
def turn(first, second, chooses, honest, liar):
    better, worse = torch.maximum(first, second), torch.minimum(first, second)
    return torch.where(chooses, honest * better + (1 - honest) * worse, liar * better + (1 - liar) * worse)
