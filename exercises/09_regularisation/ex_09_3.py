# ---
# title: A good value and the right gradient
# kind: implement
# minutes: 25
# ---

# %% [statement]
# One term should *log* $k_3$, which has the right mean and is never negative, and *train* on the right gradient. Write `kl_term(logps, ref_logps, mask)`, one number for each completion:
#
# * Its **value** is the sum of $k_3$ over the completion's tokens.
# * Its **gradient**, averaged over completions sampled from the policy, is the gradient of $\mathrm{KL}(\pi\|\pi_\text{ref})$ between *whole completions*, including the effect on later tokens.
#
# `logps` and `ref_logps` are `(B, T)`, the log-probabilities of the sampled tokens. Only the gradient through `logps` is tested. The values where `mask` is False may be anything, also NaN, and get no gradient. The number of a completion
# and its gradient depend on this completion alone. You need only `torch` and no loop. More than one answer is right: any gradient with the right mean is accepted.

# %% [given]
import torch


# %% [stub]
def kl_term(logps, ref_logps, mask):
    """logps, ref_logps: (B, T). mask: (B, T) bool. Returns (B,)."""
    raise NotImplementedError


# %% [solution]
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    value = (torch.expm1(-log_ratio) + log_ratio).sum(-1).detach()
    trained = log_ratio.sum(-1) ** 2 / 2
    return value + trained - trained.detach()


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test, tidy


@test(
    points=1,
    hints=(
        "k₃ of a token is $e^{-d} - 1 + d$ with $d = \\log\\pi - \\log\\pi_\\text{ref}$. Which tokens belong to the completion?",
        "Use `torch.where(mask, …, 0.0)` *before* the exponential, then sum each row.",
    ),
    against="k₃ token by token",
)
def logged(sub, draw):
    "The value is the sum of k₃ over the completion's own tokens."
    mask = torch.arange(4) < torch.tensor([2, 4, draw.integer(1, 3)])[:, None]
    logps, ref_logps = (tidy(-draw.uniform(3, 4, low=0.2, high=2.0)) for _ in range(2))
    rows = [(a[m], b[m]) for a, b, m in zip(logps, ref_logps, mask, strict=True)]
    value = lambda f: torch.stack([f(b - a) for a, b in rows])
    dirty = [torch.where(mask, x, torch.nan) for x in (logps, ref_logps)]
    expect(
        sub.kl_term(*dirty, mask),
        value(lambda d: (d.exp() - 1 - d).sum()),
        what="the value of each completion",
        given={"logps": logps, "ref_logps": ref_logps, "mask": mask},
        mistakes={
            "this is k₁": value(lambda d: -d.sum()),
            "this is k₂ of the tokens": value(lambda d: (d**2).sum() / 2),
            "this is k₂ of the whole completion": value(lambda d: d.sum() ** 2 / 2),
            "this is k₃ of the whole completion": value(lambda d: d.sum().exp() - 1 - d.sum()),
            "the ratio is inverted": value(lambda d: ((-d).exp() - 1 + d).sum()),
            "it is divided by the length": value(lambda d: (d.exp() - 1 - d).mean()),
        },
    )


def enumerated(sub, draw, max_len):
    """Return the mean gradient over all completions of a small language model, the right one, and well-known wrong ones."""
    policy, reference = draw.toy(2, max_len), draw.toy(2, max_len)
    probs, mask = policy.distribution()[0], policy.completions().mask
    logps, ref_logps = policy.completion_token_logps()[0], reference.completion_token_logps()[0].detach()
    slopes = sub.gradient("kl_term", logps.detach(), ref_logps, mask, wrt=0).double()
    if slopes.shape != logps.shape:
        fail(f"the gradient in `logps` has shape {tuple(slopes.shape)}; expected {tuple(logps.shape)}")
    through = lambda per_token: exact.gradient((probs.detach()[:, None] * per_token * logps).sum(), policy.table)
    got = through(torch.where(mask, slopes, 0.0))
    ratio = torch.where(mask, logps.detach() - ref_logps, 0.0)
    partial = ratio.cumsum(-1)  # the log-ratio of the completion so far
    want = exact.gradient(exact.divergence(probs, reference.distribution()[0].detach()), policy.table)
    named = {
        "k₃ is differentiated, and its gradient belongs to the other KL": through(
            torch.where(mask, -torch.expm1(-ratio), 0.0)
        ),
        "each token is credited with itself only, and the effect on later tokens is missing": through(ratio),
        "the gradient is 0 on average: either nothing has a gradient, or it is the gradient of k₁": torch.zeros_like(
            want
        ),
        "the sign is reversed: the KL grows": -want,
        "every prefix of the completion is squared, not the whole completion only": through(
            partial.flip(-1).cumsum(-1).flip(-1)
        ),
    }
    return got, want, named


def own_gradients(sub, draw):
    """Fail if the gradient of a completion leaves its mask or depends on other completions."""
    mask = torch.arange(4) < torch.tensor([2, 4, draw.integer(1, 3)])[:, None]
    logps, ref_logps = (torch.where(mask, -draw.uniform(3, 4, low=0.2, high=2.0), torch.nan) for _ in range(2))
    slopes = sub.gradient("kl_term", logps, ref_logps, mask, wrt=0)
    if not bool((slopes[~mask] == 0).all()):
        fail("there is a gradient, or NaN, where `mask` is False, and it would corrupt the gradient of the whole model")
    rows = [sub.gradient("kl_term", *(x[i : i + 1] for x in (logps, ref_logps, mask)), wrt=0) for i in range(3)]
    if not torch.allclose(slopes.double(), torch.cat(rows).double(), atol=1e-5):
        fail("the gradient of a completion changes with the other completions of the batch, so its mean is wrong")


@test(
    points=2,
    hints=(
        "For a completion of one token, which estimate has, as a loss, the gradient of KL(π‖π_ref) on average?",
        "k₂ has it. Add the k₂ term and subtract its own value again: `x - x.detach()` is 0 and keeps the gradient of `x`.",
    ),
    against="every completion of a toy language model, summed",
)
def one_token(sub, draw):
    "On completions of one token the mean gradient is the gradient of KL(π‖π_ref)."
    got, want, named = enumerated(sub, draw, 1)
    named = {name: x for name, x in named.items() if "later tokens" not in name}
    expect(got, want, what="the mean gradient on completions of one token", reveal=False, mistakes=named)
    own_gradients(sub, draw)


@test(
    points=3,
    hints=(
        "A token also decides which prefixes are reached later. Can you treat a whole completion as one decision?",
        "Take k₂ of the completion: square the *sum* of its log-ratios, not each of them. (Or multiply each token's score by the sum of the log-ratios from this token on.)",
    ),
    against="every completion of a toy language model, summed",
)
def whole_replies(sub, draw):
    "On longer completions it is the gradient of the KL between completions."
    got, want, named = enumerated(sub, draw, 3)
    expect(got, want, what="the mean gradient on completions of up to three tokens", reveal=False, mistakes=named)


# %% [probes]
# no gradient: any gradient with the right mean is right, and the tests average it


# %% [mutant] k3 is differentiated
# caught by: one_token
# says: the other KL
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    return (torch.expm1(-log_ratio) + log_ratio).sum(-1)


# %% [mutant] the padding is left out after the arithmetic
# caught by: one_token
# says: or NaN
def kl_term(logps, ref_logps, mask):
    log_ratio = logps - ref_logps
    togo = torch.where(mask, log_ratio, 0.0).detach().flip(-1).cumsum(-1).flip(-1)
    trained = torch.where(mask, log_ratio**2 / 2 + (togo - log_ratio.detach()) * log_ratio, 0.0).sum(-1)
    value = torch.where(mask, torch.expm1(-log_ratio) + log_ratio, 0.0).sum(-1).detach()
    return value + trained - trained.detach()


# %% [mutant] the batch's mean is taken off
# caught by: one_token
# says: other completions of the batch
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    whole = log_ratio.sum(-1)
    trained = (whole - whole.mean()).detach() * whole
    return (torch.expm1(-log_ratio) + log_ratio).sum(-1).detach() + trained - trained.detach()


# %% [mutant] token by token
# caught by: whole_replies
# says: effect on later tokens
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    value = (torch.expm1(-log_ratio) + log_ratio).detach()
    trained = log_ratio**2 / 2
    return (value + trained - trained.detach()).sum(-1)


# %% [mutant] everything detached
# caught by: one_token
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    value = (torch.expm1(-log_ratio) + log_ratio).sum(-1).detach()
    return value + 0.0 * torch.where(mask, logps, 0.0).sum(-1)


# %% [mutant] the value of k2
# caught by: logged
# says: k₂ of the whole completion
def kl_term(logps, ref_logps, mask):
    return torch.where(mask, logps - ref_logps, 0.0).sum(-1) ** 2 / 2


# %% [mutant] the ratio upside down
# caught by: logged
# says: inverted
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    trained = log_ratio.sum(-1) ** 2 / 2
    return (torch.expm1(log_ratio) - log_ratio).sum(-1).detach() + trained - trained.detach()


# %% [partial] 3: right for one token
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    value = (torch.expm1(-log_ratio) + log_ratio).detach()
    trained = log_ratio**2 / 2
    return (value + trained - trained.detach()).sum(-1)
