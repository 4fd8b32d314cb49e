"""A preference loss of your own: its gradient checked on a model that can be enumerated, then trained beside DPO."""

import copy

import torch

import minirlhf as rl


@rl.Needs(rl.PairLogps)
def exponential(pair, *, beta=0.1):
    """``exp(−β h)`` of the margin h, as AdaBoost has it: a loss for each pair, ``(B,)``; the mean over them is taken elsewhere."""
    return (-beta * pair.margins).exp()


# The gradient, over all pairs of completions of a tiny table, against finite differences.
toy, ref_logps = rl.ToyLM(seed=0), rl.ToyLM(seed=1).distribution()[0].log().detach()  # (N,)
better, worse = torch.combinations(torch.arange(len(ref_logps))).T


def toy_loss(table):
    toy.table.data = table
    logps = toy.distribution()[0].log()  # (N,)
    return rl.preference_loss(exponential, rl.PairLogps(*(x[k] for x in (logps, ref_logps) for k in (better, worse))))


start = toy.table.detach().clone()
(gradient,) = torch.autograd.grad(toy_loss(start), toy.table)
torch.testing.assert_close(gradient, rl.finite_difference(lambda table: toy_loss(table).detach(), start))

# Then it trains a small model, beside DPO.
model, tokenizer = rl.load("assistant-sft")
pairs = rl.sample_pairs(rl.task("assistant"), 500)
runs = {
    name: rl.train(copy.deepcopy(model), tokenizer, pairs, loss, max_steps=40, learning_rate=3e-4)
    for name, loss in {"DPO": rl.DPO, "exponential": exponential}.items()
}
rl.plot(runs, "accuracy", "margin", window=5).savefig("own_loss.png")
