# ---
# title: Bug hunt: it collapses though nothing is thrown away
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# There are eight outcomes, a model that counts, and a pool that keeps every sample. `family` prints the diversity of each generation, and the curve shows three faults. Although **everything is kept, the diversity keeps falling**, on average by the same fraction in each
# generation, as if the pool forgot old samples. Run again with another seed, it is **the same curve to the last digit**. And **every diversity is too large, also the first line, for the original distribution**: of eight equally probable outcomes two samples differ seven times in eight, and the line says 1.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `draws(model, n, seed)`: `n` samples from the probabilities `model` `(V,)`. Returns their fractions `(V,)`.
# * `join(pool, shares, generation)`: the `generation`-th set of samples (the first is 1) joins a pool that holds all sets before, each of the same size. Returns the fractions of the new pool. The pool before the first set holds no samples.
# * `diversity(model)`: the probability that two *independent* samples from `model` differ.

# %% [given]
import torch


def family(truth, n=10, generations=12, seed=0):
    """Generation after generation, each drawn from the pool."""
    print(f"truth          {float(diversity(truth)):.4f}")
    pool = truth
    for g in range(1, generations + 1):
        pool = join(pool, draws(pool, n, 1000 * seed + g), g)
        print(f"generation {g:2}  {float(diversity(pool)):.4f}")


# %% [stub]
def draws(model, n, seed):
    """model: (V,) probabilities. Returns (V,) shares."""
    rng = torch.Generator().manual_seed(seed % 10)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


def join(pool, shares, generation):
    """pool, shares: (V,). Returns (V,)."""
    return (pool + shares) / 2


def diversity(model):
    """model: (V,). Returns a scalar."""
    return (1 - (model**2).sum()) * len(model) / (len(model) - 1)


# %% [solution]
def draws(model, n, seed):
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


def join(pool, shares, generation):
    return pool + (shares - pool) / generation


def diversity(model):
    return 1 - (model**2).sum()


# %% [tests]
import torch
from minirlhf_course.classroom.chance import expect_draws, expect_independent
from minirlhf_course.classroom.testing import expect, fail, test, tidy_distribution


def counted(sub, model, n, seed):
    """Counts of the draws, from their shares."""
    got = sub.draws(model, n, seed)
    if not isinstance(got, torch.Tensor) or got.shape != model.shape:
        fail("the result of `draws` is not a tensor (V,)")
    counts = got.double() * n
    if (counts - counts.round()).abs().max() > 1e-6 or abs(float(counts.sum()) - n) > 1e-6:
        fail("the shares of `draws` are not those of n draws")
    return counts.round().long()


@test(
    points=2,
    hints=(
        "Call `draws` with the seeds 3 and 1003. What should happen, and what does?",
        "`seed % 10` has only ten different values.",
    ),
)
def fresh(sub, draw):
    "`draws` samples from the model, and other seeds give other samples."
    model = tidy_distribution(draw, 4)
    start = draw.integer(0, 2**20)
    seeds = [start + 1000 * k for k in range(40)]
    counts = [counted(sub, model, 3000, seed) for seed in seeds]  # of so many draws two are hardly ever alike
    if (different := len({tuple(c.tolist()) for c in counts})) < 35:
        fail(f"forty seeds that are 1000 apart give only {different} different draws")
    if (different := len({tuple(counted(sub, model, 3000, start + k).tolist()) for k in range(40)})) < 35:
        fail(
            f"forty seeds, each the next, give only {different} different draws: so generations of a family would draw the same"
        )
    for step in (*(2**k for k in range(6, 31)), *(10**k for k in range(2, 10))):
        if (
            counted(sub, model, 3000, start + step).tolist()
            == counts[0].tolist()
            == counted(sub, model, 3000, start + 2 * step).tolist()
        ):
            fail(f"seeds that are {step} apart give the same draws: only a remainder of the seed is used")
    spread = {tuple(counted(sub, model, 20000, draw.integer(0, 10**9)).tolist()) for _ in range(200)}
    if len(spread) < 197:  # chance alone makes two of them alike in a test of fifty at most
        fail(
            f"two hundred seeds below a billion give only {len(spread)} different draws: only a remainder of the seed is used"
        )
    places = torch.repeat_interleave(torch.arange(4), counted(sub, model, 4000, start))
    expect_draws(
        places,
        model,
        4000,
        "draws",
        mistakes={"all outcomes are taken to be equally probable": torch.full((4,), 0.25, dtype=torch.float64)},
    )
    again = counted(sub, model, 3000, start)
    if again.tolist() != counts[0].tolist():
        fail("the same seed gives other draws the second time")


@test(
    points=2,
    hints=(
        "How many sets does the pool hold after the third? What fraction of it is the newest set?",
        "After the j-th set it is 1/j of the pool, and the old pool is the rest. The first set is the whole pool.",
    ),
)
def all_weigh_the_same(sub, draw):
    "`join` gives every set the same weight."
    sets = [tidy_distribution(draw, 4) for _ in range(3)]
    pool, half = torch.full((4,), 0.25, dtype=torch.float64), torch.full((4,), 0.25, dtype=torch.float64)
    for g, one in enumerate(sets, 1):
        half = (half + one) / 2
        if not isinstance(pool := sub.join(pool, one, g), torch.Tensor):
            fail("the result of `join` is not a tensor")
    late = torch.full((4,), 0.25, dtype=torch.float64)
    for g, one in enumerate(sets, 1):
        late = late + (one - late) / (g + 1)
    expect(
        pool, sum(sets) / 3, what="the pool after three sets", given={"sets": torch.stack(sets)}, tolerance=1e-9,
        mistakes={
            "the newest set always weighs as much as all before it": half,
            "the pool before the first set is counted as a set": late,
            "only the newest set is left": sets[-1],
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "What is the diversity of a fair coin?",
        "Two independent samples agree with probability Σ p². Nothing needs a correction: that factor belongs to samples *without* replacement, or to a scale from 0 to 1.",
    ),
)
def two_draws(sub, draw):
    "`diversity` is the probability that two samples differ."
    model = tidy_distribution(draw, 5)
    p = model.tolist()
    want = sum(a * b for i, a in enumerate(p) for j, b in enumerate(p) if i != j)
    expect(
        sub.diversity(model), want, what="`diversity`", given={"model": model}, tolerance=1e-9,
        mistakes={"it is divided by the diversity of the uniform distribution": want * 5 / 4, "that is the probability that they agree": 1 - want},
    )  # fmt: skip


# %% [probes]
# no random of draws: it draws by its seed, from whichever generator
# no values, keywords, size, float32, gradient, integers of draws: any sampler of the right distribution is right
# no gradient: shares and probabilities; nobody differentiates them


# %% [mutant] ten seeds
# caught by: fresh
# says: give only
def draws(model, n, seed):
    rng = torch.Generator().manual_seed(seed % 10)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


# %% [mutant] 1,024 seeds
# caught by: fresh
# says: seeds that are 1024 apart
def draws(model, n, seed):
    rng = torch.Generator().manual_seed(seed % 1024)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


# %% [mutant] one seed for a whole family
# caught by: fresh
# says: each the next
def draws(model, n, seed):
    rng = torch.Generator().manual_seed(seed // 1000)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


# %% [mutant] pairs of generations that are alike
# caught by: fresh
# says: each the next
def draws(model, n, seed):
    rng = torch.Generator().manual_seed(seed // 2)
    drawn = torch.multinomial(model, n, True, generator=rng)
    return torch.bincount(drawn, minlength=len(model)).double() / n


# %% [mutant] no seed
# caught by: fresh
# says: second time
def draws(model, n, seed):
    drawn = torch.multinomial(model, n, True)
    return torch.bincount(drawn, minlength=len(model)).double() / n


# %% [mutant] half and half
# caught by: all_weigh_the_same
# says: as much as all before
def join(pool, shares, generation):
    return (pool + shares) / 2


# %% [mutant] one set too many
# caught by: all_weigh_the_same
# says: before the first set
def join(pool, shares, generation):
    return pool + (shares - pool) / (generation + 1)


# %% [mutant] a scale from 0 to 1
# caught by: two_draws
# says: uniform distribution
def diversity(model):
    return (1 - (model**2).sum()) * len(model) / (len(model) - 1)


# %% [mutant] agreement
# caught by: two_draws
# says: agree
def diversity(model):
    return (model**2).sum()


# %% [partial] 3: the pool still forgets
def join(pool, shares, generation):
    return (pool + shares) / 2
