# ---
# title: A win rate at equal length
# kind: implement
# minutes: 30
# ---

# %% [statement]
# A judge has compared our completions with a baseline's. `scores` `(N,)` is 1 where ours won, 0 where it lost, ½ for a tie. `terms` `(N, K)` has differences of style, ours minus the baseline's, one column for each kind: words, list marks, bold. Some columns are counted in ones and some in thousands.
# The judge's log-odds are an intercept plus a weight for each column times the difference. What would the win rate be if the completions were equally *long*, with the markup that they have?
#
# 1. `fit(scores, terms)`: the weights `(K + 1,)`, the intercept first, that maximise the log-likelihood $\sum_i [y_i \log p_i + (1 - y_i)\log(1 - p_i)]$, without a penalty. The data here have a finite optimum. Each weight must be exact to six digits, relative to 1 over the column's standard deviation.
# 2. `equal(scores, terms, columns)`: the win rate that the fitted regression predicts if the differences in the listed columns are set to 0 and the others are unchanged. `columns` is a list of column numbers, counted from 0; it may be empty. Returns one number.
#
# Everything is float64. No column has the same difference in all pairs.

# %% [given]
import torch


# %% [stub]
def fit(scores, terms):
    """scores: (N,). terms: (N, K). Returns (K + 1,)."""
    raise NotImplementedError


def equal(scores, terms, columns):
    """columns: a list of whole numbers. Returns one number."""
    raise NotImplementedError


# %% [solution]
def fit(scores, terms):
    scale = terms.std(0)
    x = torch.cat([torch.ones(len(terms), 1, dtype=terms.dtype), terms / scale], -1)
    weights = torch.zeros(x.shape[1], dtype=terms.dtype)
    for _ in range(30):
        p = torch.sigmoid(x @ weights)
        weights = weights + torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (scores - p))
    return torch.cat([weights[:1], weights[1:] / scale])


def equal(scores, terms, columns):
    weights = fit(scores, terms)
    held = terms.clone()
    held[:, columns] = 0.0
    return float(torch.sigmoid(weights[0] + held @ weights[1:]).mean())


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test

SIZES = (1.0, 40.0, 3000.0)  # of the differences: marks, words, characters


def verdicts(draw, columns=2, pairs=80, clear=1.0):
    """Scores with ties, and differences that are not centred; columns go together. ``clear``: how decided the judge is."""
    base = draw.normal(pairs, columns) + 0.5 * draw.normal(pairs, 1) + torch.tensor([0.8, -0.5, 0.3])[:columns]
    sizes = torch.tensor([SIZES[i] for i in draw.permutation(3).tolist()][:columns], dtype=torch.float64)
    truth = torch.tensor([0.6, 0.4, -0.3], dtype=torch.float64)[:columns]
    p = torch.sigmoid(clear * (0.3 + base.double() @ truth))
    scores = (draw.uniform(pairs) < p).double()
    scores[draw.permutation(pairs)[:9]] = 0.5
    return scores, (base.double() * sizes).round(decimals=2)


def best(scores, x):
    """The weights of the columns ``x (N, F)``, by least squares on working responses, which are fitted again until they stay.

    NaN if the scores have no finite optimum, which may happen if a mistake counts the ties otherwise.
    """
    size = x.square().mean(0).sqrt()
    weights = torch.zeros(x.shape[1], dtype=torch.float64)
    for _ in range(25):
        p = torch.sigmoid((x / size) @ weights)
        root = (p * (1 - p)).sqrt()
        response = (x / size) @ weights + (scores - p) / (p * (1 - p))
        if not bool(response.isfinite().all()):
            return torch.full_like(weights, torch.nan)
        weights = torch.linalg.lstsq(root[:, None] * x / size, (root * response)[:, None]).solution[:, 0]
    return weights / size


def beside_one(terms):
    return torch.cat([torch.ones(len(terms), 1, dtype=torch.float64), terms], -1)


def read(sub, scores, terms):
    got = sub.fit(scores, terms)
    if not isinstance(got, torch.Tensor) or got.shape != (terms.shape[1] + 1,):
        fail("the result of `fit` is not a tensor (K + 1,)")
    return got.double()


@test(
    points=2,
    hints=(
        "What is the gradient of the log-likelihood at your weights? It should be 0, in each column.",
        "Newton: add (XᵀWX)⁻¹ Xᵀ(y − p), with W the diagonal p(1 − p) and a column of ones in X, until nothing moves.",
    ),
    against="least squares on working responses",
)
def likeliest(sub, draw):
    "`fit` has the largest likelihood."
    # the second judge is so decided that six steps of Newton from 0 are too few
    judges = [verdicts(draw, columns=draw.integer(1, 3)), verdicts(draw, columns=1, pairs=300, clear=9.0)]
    for scores, terms in judges:
        _fitted(sub, scores, terms)


def _fitted(sub, scores, terms):
    size = torch.cat([torch.ones(1), terms.std(0)]).double()
    lost, won = (scores > 0.5).double(), (scores >= 0.5).double()
    want = best(scores, beside_one(terms)) * size
    centred = beside_one(terms - terms.mean(0))
    linear = torch.linalg.lstsq(beside_one(terms), scores[:, None]).solution[:, 0]
    decided = scores != 0.5
    expect(
        read(sub, scores, terms) * size, want, what="`fit`, in units of each column's standard deviation", given={"scores": scores, "terms": terms}, tolerance=2e-6,
        mistakes={
            "ties count as lost": best(lost, beside_one(terms)) * size,
            "ties count as won": best(won, beside_one(terms)) * size,
            "ties are left out": best(scores[decided], beside_one(terms)[decided]) * size,
            "the columns are centred, so the intercept belongs to the mean difference": best(scores, centred) * size,
            "a straight line was fitted to the scores": linear * size,
            "the weights belong to columns divided by their standard deviation": want * size,
            "there is no intercept": torch.cat([torch.zeros(1, dtype=torch.float64), best(scores, terms)]) * size,
        },
    )  # fmt: skip


@test(
    points=3,
    hints=(
        "What does the regression predict for each pair, if only the listed differences are 0?",
        "Set the listed columns of a copy to 0, keep the others, and take the mean of σ over the pairs. If no column is listed, this is the raw win rate.",
    ),
)
def held(sub, draw):
    "`equal` sets the listed columns to 0 and leaves the others."
    for columns, pairs in ((3, 80), (2, 60)):
        _held(sub, draw, *verdicts(draw, columns, pairs))


def _held(sub, draw, scores, terms):
    weights, width = best(scores, beside_one(terms)), terms.shape[1]
    chance = lambda x: float(torch.sigmoid(weights[0] + x @ weights[1:]).mean())
    order = draw.permutation(width).tolist()
    for columns in ([], order[:1], sorted(order[1:]), sorted(order)):
        keep = torch.ones(width, dtype=torch.float64)
        keep[columns] = 0.0
        alone = best(scores, beside_one(terms[:, columns])) if columns else weights[:1] * 0 + scores.mean().logit()
        want = chance(terms * keep)
        others = {
            "all columns are set to 0, also those that are not listed": chance(terms * 0),
            "the listed ones are kept, the others set to 0": chance(terms * (1 - keep)),
            "this is the raw win rate": float(scores.mean()),
            "the regression was fitted to the listed columns only": float(torch.sigmoid(alone[0])),
            "the other differences are set to their mean, and σ of a mean is not the mean of σ": chance((terms * keep).mean(0, keepdim=True)),
            "the listed columns are set to their mean, not to 0": chance(terms * keep + terms.mean(0) * (1 - keep)),
        }  # fmt: skip
        expect(
            sub.equal(scores, terms, columns), want, what="`equal`", given={"columns": columns, "scores": scores, "terms": terms}, tolerance=2e-6,
            mistakes=others,
        )  # fmt: skip


# %% [edges]
# held: it may be empty


# %% [probes]
# no gradient, integers, float32, values, size, keywords: a regression, whose data need a finite fit


# %% [mutant] ties are lost
# caught by: likeliest
# says: ties count as lost
def fit(scores, terms):
    scale = terms.std(0)
    x = torch.cat([torch.ones(len(terms), 1, dtype=terms.dtype), terms / scale], -1)
    weights = torch.zeros(x.shape[1], dtype=terms.dtype)
    for _ in range(30):
        p = torch.sigmoid(x @ weights)
        weights = weights + torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ ((scores > 0.5).double() - p))
    return torch.cat([weights[:1], weights[1:] / scale])


# %% [mutant] centred
# caught by: likeliest
# says: centred
def fit(scores, terms):
    scale = terms.std(0)
    x = torch.cat([torch.ones(len(terms), 1, dtype=terms.dtype), (terms - terms.mean(0)) / scale], -1)
    weights = torch.zeros(x.shape[1], dtype=terms.dtype)
    for _ in range(30):
        p = torch.sigmoid(x @ weights)
        weights = weights + torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (scores - p))
    return torch.cat([weights[:1], weights[1:] / scale])


# %% [mutant] plain gradient steps
# caught by: likeliest
def fit(scores, terms):
    x = torch.cat([torch.ones(len(terms), 1, dtype=terms.dtype), terms / terms.std(0)], -1)
    weights = torch.zeros(x.shape[1], dtype=terms.dtype)
    for _ in range(50):
        weights = weights + 0.5 * x.T @ (scores - torch.sigmoid(x @ weights)) / len(x)
    return torch.cat([weights[:1], weights[1:] / terms.std(0)])


# %% [mutant] everything equal
# caught by: held
# says: also those that are not listed
def equal(scores, terms, columns):
    return float(torch.sigmoid(fit(scores, terms)[0]))


# %% [mutant] at the mean
# caught by: held
# says: mean of σ
def equal(scores, terms, columns):
    weights = fit(scores, terms)
    held = terms.clone()
    held[:, columns] = 0.0
    return float(torch.sigmoid(weights[0] + held.mean(0) @ weights[1:]))


# %% [partial] 2: the fit
def equal(scores, terms, columns):
    raise NotImplementedError
