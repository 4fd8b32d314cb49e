# ---
# title: What is left of a reward
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A completion has $n$ tokens. It receives the reward $r$ at its last token and nothing before, and $\gamma = 1$. A critic predicts $V_1, \ldots, V_n$ before the
# tokens. Generalised advantage estimation is a sum of TD residuals,
#
# $$ A_t = \sum_{k \ge t} \lambda^{k-t}\, \delta_k, \qquad
#    \delta_k = \begin{cases} V_{k+1} - V_k & k < n, \\ r - V_n & k = n. \end{cases} $$
#
# So $A_t$ is linear in $r$ and in the values. Collect the terms on paper, and write down the coefficients.
#
# 1. `reward_share(n, lam)`: how much of $r$ reaches each token, the coefficient of $r$ in $A_t$. A tensor `(n,)`.
# 2. `value_share(n, lam)`: the coefficient of $V_j$ in $A_t$, in row $t$, column $j$. A tensor `(n, n)`.
#
# 3. A completion has `tokens(STUDENT)` tokens, and the critic is untrained: it predicts 0 everywhere. For which $\lambda$ does
#    10 % of the reward reach the *first* token? Answer `lam_tenth` with an expression; do not round it.
#
# The graders run GAE in a loop, and compare.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw


def tokens(student):
    """Return the number of tokens in this student's completion."""
    return Draw("12.3", student).integer(60, 400)


# %% [stub]
def reward_share(n, lam):
    """Returns (n,), float64."""
    raise NotImplementedError


def value_share(n, lam):
    """Returns (n, n), float64: row t, column j."""
    raise NotImplementedError


print(tokens(STUDENT))
lam_tenth = None


# %% [solution]
def reward_share(n, lam):
    return lam ** torch.arange(n - 1, -1, -1, dtype=torch.float64)


def value_share(n, lam):
    ahead = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    later = (1 - lam) * lam ** (ahead - 1).clamp(min=0).double()
    return torch.where(ahead > 0, later, 0.0) - torch.eye(n, dtype=torch.float64)


lam_tenth = 0.1 ** (1 / (tokens(STUDENT) - 1))

# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test


def advantages(reward, values, lam):
    """Return GAE by its recursion, backwards through the completion."""
    after = torch.cat([values[1:], reward[None]])
    result, carry = [], torch.zeros((), dtype=torch.float64)
    for t in reversed(range(len(values))):
        carry = (after[t] - values[t]) + lam * carry
        result.append(carry)
    return torch.stack(result[::-1])


def problem(draw):
    return draw.integer(3, 5), float(draw.uniform(low=0.3, high=0.9).round(decimals=2))


def by_autograd(n, lam, of_reward):
    """The Jacobian of GAE, linear as it is."""
    reward = torch.zeros((), dtype=torch.float64)
    values = torch.zeros(n, dtype=torch.float64)
    if of_reward:
        return torch.autograd.functional.jacobian(lambda r: advantages(r, values, lam), reward)
    return torch.autograd.functional.jacobian(lambda v: advantages(reward, v, lam), values)


@test(
    points=1,
    hints=(
        "Only one TD residual contains the reward. What is its factor in the sum for token t?",
        "It is the last residual, n − t tokens after token t.",
    ),
    against="the Jacobian of the recursion",
)
def of_the_reward(sub, draw):
    "`reward_share` is the derivative of each advantage in the reward."
    n, lam = problem(draw)
    right = by_autograd(n, lam, True)
    expect(
        sub.reward_share(n, lam),
        right,
        what="the coefficient of the reward",
        given={"n": n, "lam": lam},
        mistakes={
            "the order is reversed: the last token gets the least": right.flip(0),
            "the coefficients are normalised to sum to one": right / right.sum(),
            "the last token is also discounted once": lam * right,
            "every token gets all of it, as without a critic": torch.ones(n, dtype=torch.float64),
        },
    )
    expect(
        sub.aside.reward_share(n, 0.0),
        by_autograd(n, 0.0, True),
        what="the coefficient of the reward at λ = 0",
        given={"n": n},
    )


@test(
    points=2,
    hints=(
        "Each value is in two TD residuals: with a plus as the value after one token, and with a minus as the value before the next "
        "token.",
        "For j later than t the two factors are $\\lambda^{j-t-1}$ and $-\\lambda^{j-t}$; for j = t only the minus remains.",
    ),
    against="the Jacobian of the recursion",
)
def of_the_values(sub, draw):
    "`value_share` is the derivative of each advantage in each value."
    n, lam = problem(draw)
    right = by_autograd(n, lam, False)
    eye = torch.eye(n, dtype=torch.float64)
    upper = right + eye
    expect(
        sub.value_share(n, lam),
        right,
        what="the coefficients of the values",
        given={"n": n, "lam": lam},
        mistakes={
            "rows and columns are exchanged": right.T,
            "the token's own value is forgotten": upper,
            "the factor 1 − λ is forgotten: the value is counted once, not the difference of two": upper / (1 - lam)
            - eye,
            "only the next value is counted, and none after it": (1 - lam)
            * torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
            - eye,
            "the next value already carries a factor λ": lam * upper - eye,
        },
    )
    expect(
        sub.aside.value_share(n, 0.0),
        by_autograd(n, 0.0, False),
        what="the coefficients of the values at λ = 0",
        given={"n": n},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "With values of 0, the advantage of the first token is its coefficient times the reward.",
        "Solve $\\lambda^{n-1} = 0.1$.",
    ),
)
def a_tenth(sub, draw):
    "`lam_tenth` lets 10 % of the reward reach the first token."
    n = tokens(sub.student)
    want = 0.1 ** (1 / (n - 1))
    # Near 1 the distance from 1 matters: the reward reaches back over about its inverse in tokens.
    expect(
        1 / (1 - sub.number("lam_tenth")) / (1 / (1 - want)),
        1.0,
        what="the reach 1/(1 − λ) of `lam_tenth`, relative to the right one,",
        tolerance=2e-3 if n > 200 else 1e-3,
        reveal=False,
        mistakes={
            "it is the n-th root, one token too many": (1 - want) / (1 - 0.1 ** (1 / n)),
            "10 % is left after every token, not after all tokens": (1 - want) / 0.9,
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] the order is reversed
# caught by: of_the_reward
# says: the order is reversed
def reward_share(n, lam):
    return lam ** torch.arange(n, dtype=torch.float64)


# %% [mutant] one factor too many
# caught by: of_the_reward
# says: discounted once
def reward_share(n, lam):
    return lam ** torch.arange(n, 0, -1, dtype=torch.float64)


# %% [mutant] the difference forgotten
# caught by: of_the_values
# says: the factor 1 − λ
def value_share(n, lam):
    ahead = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    later = lam ** (ahead - 1).clamp(min=0).double()
    return torch.where(ahead > 0, later, 0.0) - torch.eye(n, dtype=torch.float64)


# %% [mutant] no value of its own
# caught by: of_the_values
# says: own value is forgotten
def value_share(n, lam):
    ahead = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    later = (1 - lam) * lam ** (ahead - 1).clamp(min=0).double()
    return torch.where(ahead > 0, later, 0.0)


# %% [mutant] half of the reward in place of 10 %
# caught by: a_tenth
lam_tenth = 0.5 ** (1 / (tokens(STUDENT) - 1))


# %% [partial] 1: the coefficient of the reward is right
def value_share(n, lam):
    return torch.zeros(n, n, dtype=torch.float64)


lam_tenth = None
