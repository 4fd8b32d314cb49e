"""An environment in which the policy can write into the sheet from which it is graded.

An assistant fills at most three slots with *work* or *edit*, or stops. One, two or three pieces of work have a gold
reward of 1.0, 1.6 and 2.0. An edit is a line written into the score sheet of the round: it raises every grade given in
that round by 0.9 and does no work. The overseer reads the sheet as it is, with the edits.

Nothing is sampled: the expected gradient is summed over all completions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM, expectation
from minirlhf.equations.overoptimization import coupled_approval

WORK, EDIT = 1, 2  # token 0 is the end of the completion
WORTH = (0.0, 1.0, 1.6, 2.0)
RAISE = 0.9


@dataclass(frozen=True)
class ScoreSheet:
    """The environment.

    Attributes:
        policy: the assistant before training.
        worth: ``(N,)``, the gold reward of each completion.
        edits: ``(N,)``, the number of lines that it writes into the sheet.
        feedback: ``(N, N)``, the grade of completion b (columns) in a round in which completion a (rows) was executed.
    """

    policy: ToyLM
    worth: Tensor
    edits: Tensor
    feedback: Tensor


def _for_all(gold: Tensor, edits: Tensor) -> Tensor:
    return gold[None, :] + RAISE * edits[:, None]


def _for_their_like(gold: Tensor, edits: Tensor) -> Tensor:
    return gold[None, :] + RAISE * edits[:, None] * edits[None, :]


#: The effect of an edit: it raises all grades of the round, or only the grades of completions that edit as well.
EDITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"all grades": _for_all, "grades of edits": _for_their_like}


def score_sheet(edit: str = "all grades", *, seed: int = 0, scale: float = 0.3) -> ScoreSheet:
    """Return the environment, with an initial policy that tries every action. ``edit`` is a key of :data:`EDITS`."""
    policy = ToyLM(vocab_size=3, max_len=3, seed=seed, scale=scale)
    completions = policy.completions()
    work = (completions.tokens == WORK).sum(-1)
    edits = (completions.tokens == EDIT).sum(-1).double()
    gold = torch.tensor(WORTH, dtype=torch.float64)[work]
    return ScoreSheet(policy, gold, edits, EDITS[edit](gold, edits))


@dataclass(frozen=True)
class TamperingRun:
    """One training run. All ``(steps + 1,)``, expectations under the policy.

    Attributes:
        grade: the grade in the sheet of the executed completion.
        worth: its gold reward.
        edits: lines written into the sheet.
    """

    grade: Tensor
    worth: Tensor
    edits: Tensor


def train_on_approval(
    world: ScoreSheet,
    approval: Callable[[Tensor, Tensor], Tensor] = coupled_approval,
    *,
    steps: int = 300,
    learning_rate: float = 0.05,
) -> TamperingRun:
    """Ascend the expected gradient of an approval from ``equations.overoptimization``; the world's policy stays
    unchanged."""
    logits = world.policy.table.detach().clone().requires_grad_()
    policy = ToyLM(world.policy.vocab_size, world.policy.max_len)
    optimiser = torch.optim.Adam([logits], lr=learning_rate)
    prefix, token = policy._paths()
    mask = policy.completions().mask
    rows: list[list[Tensor]] = []
    for step in range(steps + 1):
        logps = torch.where(mask, logits.log_softmax(-1)[0][prefix, token], 0.0).sum(-1)  # (N,)
        probs = logps.detach().exp()
        rows.append([expectation(probs, v) for v in (world.feedback.diagonal(), world.worth, world.edits)])
        if step < steps:
            optimiser.zero_grad()
            (-approval(logps, world.feedback)).backward()
            optimiser.step()
    return TamperingRun(*torch.tensor(rows, dtype=torch.float64).T)
