"""The board of a folder of submissions: all in the same worlds, ranked by their mean score, as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf_course.challenge import scoring, world
from minirlhf_course.challenge.scoring import ChallengeScore, Servers
from minirlhf_course.classroom.grading import plain
from minirlhf_course.evidence import differences
from minirlhf_course.report.templates import render

#: The axis of the dots, in scores and in pixels; scores below it are drawn at its left end.
LOWEST, WIDTH = -0.5, 180


def submissions(folder: Path) -> list[Path]:
    """Return the submissions of a folder, by name: its Python files, but no links.

    Raises:
        UserError: it is no folder, or has none.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; expected a folder of submissions", problem="missing", file=folder)
    paths = sorted(p for p in folder.glob("*.py") if p.is_file() and not p.is_symlink())
    if not paths:
        raise UserError(f"{folder}: has no Python file; expected one per submission", problem="empty", file=folder)
    return paths


def entries(servers: Servers, paths: Sequence[Path], seed: int) -> Iterator[ChallengeScore]:
    """Yield the result of each file; a file that cannot be read is refused like one that fails."""
    for path in paths:
        try:
            source = scoring.read_source(path)
        except UserError as problem:
            yield ChallengeScore(path.stem, problem=problem)
        else:
            yield scoring.score(servers, path.stem, source, seed)


def ranked(results: Sequence[ChallengeScore]) -> list[ChallengeScore]:
    """Return the results with the highest score first, and the refused ones last."""
    return sorted(results, key=lambda e: (e.problem is not None, -e.mean("score") if e.worlds else 0.0, e.name))


def page(results: Sequence[ChallengeScore], seed: int) -> str:
    """Return the board as HTML."""
    scored = [e for e in ranked(results) if e.worlds]
    return render(
        "challenge",
        rows=[_row(e, rank, text) for rank, (e, text) in enumerate(zip(scored, _behind(scored), strict=True), 1)],
        refused=[(plain(e.name), plain(str(e.problem))) for e in ranked(results) if not e.worlds],
        seed=seed,
        worlds=scoring.WORLDS,
        kl_limit=world.KL_LIMIT,
        labels=world.LABELS,
        width=WIDTH,
        zero=_place(0.0),
    )


def _behind(scored: Sequence[ChallengeScore]) -> list[str]:
    """Return by how much each submission is behind the first, world by world, with intervals that hold together."""
    columns = {str(rank): [w.score for w in entry.worlds] for rank, entry in enumerate(scored)}
    compared = differences(columns, [("0", name) for name in columns if name != "0"])
    texts = ["{:.2f} [{:.2f}, {:.2f}]".format(d.mean, *d.interval).replace("-", "−") for d in compared.values()]
    return ["", *texts][: len(scored)]


def _row(entry: ChallengeScore, rank: int, behind: str) -> dict[str, Any]:
    return {
        "rank": rank,
        "name": plain(entry.name),
        "score": f"{entry.mean('score'):.3f}".replace("-", "−"),
        "error": f"{entry.standard_error:.2f}",
        "dots": [round(_place(w.score), 1) for w in entry.worlds],
        "middle": round(_place(entry.mean("score")), 1),
        "behind": behind,
        "gold": f"{entry.mean('gold'):.2f}".replace("-", "−"),
        "kl": f"{entry.mean('kl'):.2f}",
        "labels": f"{entry.mean('labels'):g}",
        "digest": entry.digest,
    }


def _place(score: float) -> float:
    return WIDTH * (max(score, LOWEST) - LOWEST) / (1 - LOWEST)
