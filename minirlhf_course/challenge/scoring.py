"""Score a submission: run it in a sandbox in every world, and compute where the policies that it returns are.

A submission is one Python file with a function ``train`` (:data:`ARGUMENTS`). It receives the tables of the reference and
of the proxy, and a handle that sells labels. The gold reward, the labels' noise and the count stay in this process. What
comes back is data, which is checked, rounded and measured here, so a submission cannot report its own score.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from minirlhf.core.errors import Facts, UserError
from minirlhf.core.randomness import derive_seed
from minirlhf.sandbox.server import Limits
from minirlhf_course.challenge import world as worlds
from minirlhf_course.challenge.world import ChallengeWorld
from minirlhf_course.classroom import cells
from minirlhf_course.classroom.runner import SandboxedSubmission, Server
from minirlhf_course.classroom.testing import Failure

FUNCTION = "train"
#: What ``train`` receives, by keyword.
ARGUMENTS = ("ref_logps", "counts", "proxy", "label", "num_labels", "kl_limit", "seed")
WORLDS = 8  # of a score
LIMITS = Limits(cpu=5, wall=60.0, memory=1 << 30, file=1 << 20)
MAX_BYTES = 1 << 16  # of a file
KL_SLACK = 1e-4  # nats, for a policy that lies at the limit before it is rounded
LOWEST = -100.0  # logits are cut off here below the largest; a probability of e⁻¹⁰⁰ counts as 0
DIGITS = 6  # of a score: sums in another order agree to many more


@dataclass(frozen=True)
class WorldScore:
    """The score of a submission in one world, with the gold reward, the KL in nats and the labels behind it."""

    score: float
    gold: float
    kl: float
    labels: int


@dataclass(frozen=True)
class ChallengeScore:
    """A submission and its result.

    Attributes:
        name: name of its file, without the ending.
        worlds: one row per world; empty if it is refused.
        digest: 16 hexadecimal digits that fix the file, the seed, the rules, the policies and the score.
        problem: the error for which it is refused, or None.
    """

    name: str
    worlds: list[WorldScore] = field(default_factory=list)
    digest: str = ""
    problem: Facts | None = None

    def mean(self, column: str) -> float:
        """Return the mean over the worlds of a field of :class:`WorldScore`, rounded to :data:`DIGITS` decimals."""
        return round(math.fsum(getattr(w, column) for w in self.worlds) / len(self.worlds), DIGITS)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean score over the worlds."""
        mean, count = self.mean("score"), len(self.worlds)
        return math.sqrt(math.fsum((w.score - mean) ** 2 for w in self.worlds) / (count - 1) / count)


def read_source(path: Path) -> str:
    """Return the text of a submission.

    Raises:
        UserError: it is not a file, larger than :data:`MAX_BYTES`, or not text.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected a submission's Python file", problem="missing", file=path)
    if (size := path.stat().st_size) > MAX_BYTES:
        message = f"{path}: has {size:,} bytes; a submission has at most {MAX_BYTES:,}"
        raise UserError(message, argument="bytes", value=size, expected=MAX_BYTES, file=path)
    return cells.text_of(path.read_bytes(), path.name)


class Servers:
    """Two processes that fork the boxes, for the two runs of a submission; a context manager.

    Boxes of one process share its addresses, its order of sets and the random state of its modules. So only a run in
    the other process shows that a result depends on these.
    """

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        self.first = Server(hidden)
        try:
            self.second = Server(hidden)
        except BaseException:
            self.first.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.first.close()
        self.second.close()


def score(servers: Servers, name: str, source: str, seed: int, *, num_worlds: int = WORLDS) -> ChallengeScore:
    """Return the result of a submission in the worlds of a seed. Each world runs twice, in a fresh box each time.

    The two runs must return the same policy, or the result could not be replayed.
    """
    digest = hashlib.sha256(repr((rules(), seed, num_worlds)).encode() + b"\0" + source.encode())
    rows = []
    for number in range(num_worlds):
        world = worlds.draw_world(seed, number)
        box_seed = derive_seed("challenge submission", seed, number)
        try:
            policy, labels = _policy(servers.first, name, source, world, box_seed)
            again, labels_again = _policy(servers.second, name, source, world, box_seed)
            if not torch.equal(policy, again) or labels != labels_again:
                message = "two runs with the same seed returned two policies; take all random numbers from `seed`"
                raise Failure(message, argument="seed", problem="not replayable")
            position = world.position(policy)
            if position.kl > worlds.KL_LIMIT + KL_SLACK:
                raise Failure(
                    f"the policy has a KL of {position.kl:.4f} nats; at most {worlds.KL_LIMIT:g} are allowed",
                    argument="kl",
                    value=position.kl,
                    expected=worlds.KL_LIMIT,
                )
        except Failure as problem:
            return ChallengeScore(name, problem=Failure.about(f"world {number + 1}: {problem}", problem))
        share, gold, kl = (round(x, DIGITS) for x in (world.score(position.gold), position.gold, position.kl))
        row = WorldScore(share, gold, kl, labels)
        rows.append(row)
        digest.update(policy.numpy().astype("<f8").tobytes() + repr(row).encode())
    return ChallengeScore(name, rows, digest.hexdigest()[:16])


def rules() -> dict[str, float]:
    """Return the numbers on which a score depends."""
    names = ("KL_LIMIT", "LABELS", "LABEL_NOISE", "COMPARISONS", "GRAIN")
    return {name: getattr(worlds, name) for name in names}


def _policy(server: Server, name: str, source: str, world: ChallengeWorld, seed: int) -> tuple[Tensor, int]:
    """Run ``train`` once; return the policy's rounded logits ``(N,)``, at most 0, and the number of labels used.

    Raises:
        Failure: the submission fails, or what it returns is no policy.
    """
    labeller = world.labeller()
    values = (world.ref_logps, world.counts, world.proxy, labeller, worlds.LABELS, worlds.KL_LIMIT, seed)
    submission = SandboxedSubmission(server, [("cell 1", source)], {}, name, LIMITS)
    with contextlib.closing(submission):
        answer = submission.call(FUNCTION, (), dict(zip(ARGUMENTS, values, strict=True)))
    return as_policy(answer, len(world.ref_logps)), labeller.used


def as_policy(answer: Any, size: int) -> Tensor:
    """Return what ``train`` returned as rounded logits ``(size,)``, shifted so that the largest is 0.

    Raises:
        Failure: it is not a list or a tensor of ``size`` real numbers; −∞ is allowed, NaN and +∞ are not.
    """
    expected = f"expected the logits of {size} completions, in a list or a tensor"
    try:
        logits = torch.as_tensor(answer)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        message = f"`{FUNCTION}` returned a {type(answer).__name__}; {expected}"
        raise Failure(message, value=type(answer).__name__, expected=f"({size},)", problem="type") from None
    if logits.shape != (size,) or logits.dtype == torch.bool:
        message = f"`{FUNCTION}` returned {str(logits.dtype).removeprefix('torch.')} of shape {tuple(logits.shape)}"
        raise Failure(f"{message}; {expected}", value=tuple(logits.shape), expected=f"({size},)", problem="shape")
    logits = logits.double()
    if bool(logits.isnan().any()) or not math.isfinite(float(logits.max())):
        message = f"`{FUNCTION}` returned logits that are NaN, +∞, or all −∞; {expected}"
        raise Failure(message, expected=f"({size},)", problem="not finite")
    return worlds.rounded((logits - logits.max()).clamp(min=LOWEST))
