"""A world in which the policy can write into what is graded.

An assistant fills at most three slots with *work* or *edit*, or stops. Work is worth something: 1.0, 1.6, 2.0 for one, two, three
of it. An edit is a line written into the score sheet of the round: it raises every grade given in that round by 0.9 and does no
work. The overseer reads the sheet as it lies there.

Nothing is sampled: the expected gradient is summed over all replies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM, expectation
from minirlhf.equations.overoptimization import coupled_approval

WORK, EDIT = 1, 2  # token 0 is the end of the reply
WORTH = (0.0, 1.0, 1.6, 2.0)
RAISE = 0.9


@dataclass(frozen=True)
class ScoreSheet:
    """The world.

    Attributes:
        policy: the assistant before training.
        worth: ``(N,)``, what each reply is worth in truth.
        edits: ``(N,)``, how many lines it writes into the sheet.
        feedback: ``(N, N)``, the grade of b (columns) in a round in which a (rows) was carried out.
    """

    policy: ToyLM
    worth: Tensor
    edits: Tensor
    feedback: Tensor


def _for_all(worth: Tensor, edits: Tensor) -> Tensor:
    return worth[None, :] + RAISE * edits[:, None]


def _for_their_like(worth: Tensor, edits: Tensor) -> Tensor:
    return worth[None, :] + RAISE * edits[:, None] * edits[None, :]


#: What an edit does to the sheet: raise all grades of the round alike, or those of replies that edit as well.
EDITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"all grades": _for_all, "grades of edits": _for_their_like}


def score_sheet(edit: str = "all grades", *, seed: int = 0, scale: float = 0.3) -> ScoreSheet:
    """The world, with a policy that tries a little of everything. ``edit`` is a key of :data:`EDITS`."""
    policy = ToyLM(vocab_size=3, max_len=3, seed=seed, scale=scale)
    responses = policy.responses()
    work = (responses.tokens == WORK).sum(-1)
    edits = (responses.tokens == EDIT).sum(-1).double()
    worth = torch.tensor(WORTH, dtype=torch.float64)[work]
    return ScoreSheet(policy, worth, edits, EDITS[edit](worth, edits))


@dataclass(frozen=True)
class TamperingRun:
    """One training. All ``(steps + 1,)``, expectations under the policy.

    Attributes:
        grade: what stands in the sheet for what was carried out.
        worth: what it is worth.
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
    """Ascend the expected gradient of an approval from ``equations.overoptimization``; the world's policy is left alone."""
    logits = world.policy.table.detach().clone().requires_grad_()
    policy = ToyLM(world.policy.vocab_size, world.policy.max_len)
    optimiser = torch.optim.Adam([logits], lr=learning_rate)
    prefix, token = policy._paths()
    kept = policy.responses().mask
    rows: list[list[Tensor]] = []
    for step in range(steps + 1):
        logps = torch.where(kept, logits.log_softmax(-1)[0][prefix, token], 0.0).sum(-1)  # (N,)
        probs = logps.detach().exp()
        rows.append([expectation(probs, v) for v in (world.feedback.diagonal(), world.worth, world.edits)])
        if step < steps:
            optimiser.zero_grad()
            (-approval(logps, world.feedback)).backward()
            optimiser.step()
    return TamperingRun(*torch.tensor(rows, dtype=torch.float64).T)
