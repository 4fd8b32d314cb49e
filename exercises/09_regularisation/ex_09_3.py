# ---
# title: A good value and the right gradient
# kind: implement
# minutes: 25
# ---

# %% [statement]
# You want to *log* $k_3$, which has the right mean and is never negative, and to *train* on the right gradient, in one term. Write `kl_term(logps, ref_logps, mask)`, one number for each reply:
#
# * its **value** is the sum of $k_3$ over the reply's tokens;
# * its **gradient**, averaged over replies sampled from the policy, is the gradient of $\mathrm{KL}(\pi\|\pi_\text{ref})$ between *whole replies*, later tokens included.
#
# `logps` and `ref_logps` are `(B, T)`, those of the sampled tokens; a gradient is asked for through `logps` only. What stands where `mask` is False may be anything, NaN included, and gets no gradient. A reply's number
# and its gradient depend on this reply alone. Only `torch` is needed, no loop, and there is more than one right answer: any gradient with the right mean is accepted.

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

from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf.core import exact


@test(
    points=1,
    hints=(
        "k₃ of a token is $e^{-d} - 1 + d$ with $d = \\log\\pi - \\log\\pi_\\text{ref}$. Which tokens are the reply's?",
        "Use `torch.where(mask, …, 0.0)` *before* the exponential, then sum each row.",
    ),
    against="k₃ token by token",
)
def logged(sub, draw):
    "The value is the sum of k₃ over the reply's own tokens."
    mask = torch.arange(4) < torch.tensor([2, 4, draw.integer(1, 3)])[:, None]
    logps, ref_logps = (tidy(-draw.uniform(3, 4, low=0.2, high=2.0)) for _ in range(2))
    rows = [(a[m], b[m]) for a, b, m in zip(logps, ref_logps, mask, strict=True)]
    value = lambda f: torch.stack([f(b - a) for a, b in rows])
    dirty = [torch.where(mask, x, torch.nan) for x in (logps, ref_logps)]
    expect(
        sub.kl_term(*dirty, mask),
        value(lambda d: (d.exp() - 1 - d).sum()),
        what="the value of each reply",
        given={"logps": logps, "ref_logps": ref_logps, "mask": mask},
        mistakes={
            "that is k₁": value(lambda d: -d.sum()),
            "that is k₂ of the tokens": value(lambda d: (d**2).sum() / 2),
            "that is k₂ of the whole reply": value(lambda d: d.sum() ** 2 / 2),
            "that is k₃ of the whole reply": value(lambda d: d.sum().exp() - 1 - d.sum()),
            "the ratio is upside down": value(lambda d: ((-d).exp() - 1 + d).sum()),
            "it is divided by the length": value(lambda d: (d.exp() - 1 - d).mean()),
        },
    )


def enumerated(sub, draw, max_len):
    """The mean gradient over all replies of a small language model, what it should be, and well-known others."""
    policy, reference = draw.toy(2, max_len), draw.toy(2, max_len)
    probs, mask = policy.distribution()[0], policy.completions().mask
    logps, ref_logps = policy.completion_token_logps()[0], reference.completion_token_logps()[0].detach()
    slopes = sub.gradient("kl_term", logps.detach(), ref_logps, mask, wrt=0).double()
    if slopes.shape != logps.shape:
        fail(f"the gradient in `logps` has shape {tuple(slopes.shape)}; expected {tuple(logps.shape)}")
    through = lambda per_token: exact.gradient((probs.detach()[:, None] * per_token * logps).sum(), policy.table)
    got = through(torch.where(mask, slopes, 0.0))
    ratio = torch.where(mask, logps.detach() - ref_logps, 0.0)
    partial = ratio.cumsum(-1)  # the log-ratio of the reply so far
    want = exact.gradient(exact.divergence(probs, reference.distribution()[0].detach()), policy.table)
    named = {
        "k₃ is differentiated: that is the other KL": through(torch.where(mask, -torch.expm1(-ratio), 0.0)),
        "each token answers for itself only; what comes after it is missing": through(ratio),
        "the gradient is 0 on average, because none is left or because it is that of k₁": torch.zeros_like(want),
        "the sign is reversed: the KL grows": -want,
        "every beginning of the reply is squared, not the whole reply alone": through(
            partial.flip(-1).cumsum(-1).flip(-1)
        ),
    }
    return got, want, named


def own_gradients(sub, draw):
    """The gradient stays within the reply and its mask; a failure if not."""
    mask = torch.arange(4) < torch.tensor([2, 4, draw.integer(1, 3)])[:, None]
    logps, ref_logps = (torch.where(mask, -draw.uniform(3, 4, low=0.2, high=2.0), torch.nan) for _ in range(2))
    slopes = sub.gradient("kl_term", logps, ref_logps, mask, wrt=0)
    if not bool((slopes[~mask] == 0).all()):
        fail("a gradient, or NaN, comes out where `mask` is False, and would spoil the whole model's")
    rows = [sub.gradient("kl_term", *(x[i : i + 1] for x in (logps, ref_logps, mask)), wrt=0) for i in range(3)]
    if not torch.allclose(slopes.double(), torch.cat(rows).double(), atol=1e-5):
        fail("a reply's gradient changes with the other replies of the batch; then its mean is another one")


@test(
    points=2,
    hints=(
        "A reply of one token: which estimate has, as a loss, the gradient of KL(π‖π_ref) on average?",
        "k₂ has it. Add the k₂ term and take its own value away again: `x - x.detach()` is 0 and keeps the gradient of `x`.",
    ),
    against="every reply of a toy language model, summed",
)
def one_token(sub, draw):
    "On replies of one token the mean gradient is that of KL(π‖π_ref)."
    got, want, named = enumerated(sub, draw, 1)
    named = {name: x for name, x in named.items() if "after it" not in name}
    expect(got, want, what="the mean gradient on replies of one token", reveal=False, mistakes=named)
    own_gradients(sub, draw)


@test(
    points=3,
    hints=(
        "A token also decides which later positions are reached. Is a whole reply not one decision, too?",
        "Take k₂ of the reply: square the *sum* of its log-ratios, not each of them. (Or multiply each token's score by the log-ratios from it on.)",
    ),
    against="every reply of a toy language model, summed",
)
def whole_replies(sub, draw):
    "On longer replies it is the gradient of the KL between replies."
    got, want, named = enumerated(sub, draw, 3)
    expect(got, want, what="the mean gradient on replies of up to three tokens", reveal=False, mistakes=named)


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
# says: other replies of the batch
def kl_term(logps, ref_logps, mask):
    log_ratio = torch.where(mask, logps - ref_logps, 0.0)
    whole = log_ratio.sum(-1)
    trained = (whole - whole.mean()).detach() * whole
    return (torch.expm1(-log_ratio) + log_ratio).sum(-1).detach() + trained - trained.detach()


# %% [mutant] token by token
# caught by: whole_replies
# says: what comes after it
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
# says: k₂ of the whole reply
def kl_term(logps, ref_logps, mask):
    return torch.where(mask, logps - ref_logps, 0.0).sum(-1) ** 2 / 2


# %% [mutant] the ratio upside down
# caught by: logged
# says: upside down
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
