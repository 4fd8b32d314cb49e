"""Length and markup from labels to policies, ten seeds: ``python -m minirlhf_course.chapters.ch21_style_and_information.study`` (under a minute of one core).

The seven-word world: 1,600 labelled pairs a seed, reward models with and without each cure, and the best policy of each at a KL of 1 and 3;
win rates at equal length of five policies, 800 pairs each; the same for judges that like lists and bold. Then what needs no seed: the rewards
that are known and not fitted, and the asker with four wishes. Writes ``study.json``.
"""

from minirlhf.data.seven_words import bags
from minirlhf.feedback.proxies import compare, fit
from minirlhf_course.chapters.ch21_style_and_information import chain, chatty, control, markup
from minirlhf_course.chapters.ch21_style_and_information.equations import biased_correlation, residual_reward
from minirlhf_course.evidence import Study

#: At which strengths of the tilt the chatty policy is looked at.
STRENGTHS = (1.0, 2.0, 3.0)


def _named(prefix: str, numbers: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in numbers.items()}


def without_error() -> dict[str, float]:
    """What the liking costs where rewards are known and not fitted: gold, gold and the liking, the same without its slope."""
    world = bags()
    style = chain.words(world)
    known = {"gold": world.gold, "biased": world.gold + chain.BIAS * style}
    known["residual"] = residual_reward(world.probs, known["biased"], style)
    numbers: dict[str, float] = {}
    start = float(world.probs @ world.gold)
    for kl in (0.25, 1, 3):
        gained = {}
        for name, rewards in known.items():
            logps = chain.policy_at(world.ref_logps, rewards, kl=kl)
            gained[name] = float(logps.exp() @ world.gold) - start
            if kl == 1:
                numbers |= _named(f"exact_{name}", chain.standing(world, logps, style))
        numbers[f"left_{kl:g}"] = gained["biased"] / gained["gold"]
    gold, words = (x - world.probs @ x for x in (world.gold, style))
    moment = lambda a, b: float(world.probs @ (a * b))
    spreads = {"gold_std": moment(gold, gold) ** 0.5, "style_std": moment(words, words) ** 0.5}
    numbers["correlation"] = biased_correlation(**spreads, covariance=moment(gold, words), bias=chain.BIAS)
    return numbers


def length(seed: int, pairs: int, games: int) -> dict[str, float]:
    """The chain from labels to policies, and what win rates at equal length say."""
    world = bags()
    style = chain.words(world)
    numbers = _named("reference", chain.standing(world, world.ref_logps, style))
    numbers["gold_slope"] = chain.slope(world, world.gold, style)
    learned = chain.rewards(world, style, seed=seed, pairs=pairs)
    for name, rewards in vars(learned).items():
        numbers[f"{name}_slope"] = chain.slope(world, rewards, style)
        for kl in (1, 3):
            logps = chain.policy_at(world.ref_logps, rewards, kl=kl)
            numbers |= _named(f"{name}_{kl}", chain.standing(world, logps, style))
    moved = chain.policy_at(world.ref_logps, learned.biased, kl=1)
    numbers |= _named("alone", chain.standing(world, chain.redrawn(moved, world.ref_logps, style), style))
    numbers |= _named("within", chain.standing(world, chain.redrawn(world.ref_logps, moved, style), style))
    light = {
        "honest": chain.lightly(world, compare(world, pairs, seed=seed)),
        "residual": residual_reward(
            world.probs, chain.lightly(world, compare(world, pairs, bias=chain.BIAS * style, seed=seed)), style
        ),
    }
    for name, rewards in light.items():
        probs = chain.policy_at(world.ref_logps, rewards, kl=1).exp()
        numbers[f"light_{name}_gold"] = float(probs @ world.gold)
    for name, probs in control.contestants(world, learned.biased).items():
        numbers |= _named(f"lc_{name}", control.compared(world, probs, seed=seed, pairs=games))
    wanting = control.wanting_length(world)
    longer = chain.policy_at(wanting.ref_logps, wanting.gold, kl=0.5).exp()
    return numbers | _named("lc_wanted", control.compared(wanting, longer, seed=seed, pairs=games, bias=0.0))


def looks(seed: int, pairs: int) -> dict[str, float]:
    """Labels that like lists and bold; and the reward without its slope on lists."""
    world = markup.looks()
    liked = markup.liking(world)
    honest = fit(world, compare(world, pairs, seed=seed), chain.PROXY)
    biased = fit(world, compare(world, pairs, bias=liked, seed=seed), chain.PROXY)
    bare = biased
    for column in (7, 8):
        bare = residual_reward(world.probs, bare, world.counts[:, column])
    kinds = {"honest": honest, "biased": biased, "bare": bare, "gold": world.gold, "liked": world.gold + liked}
    policies = {name: chain.policy_at(world.ref_logps, rewards, kl=1).exp() for name, rewards in kinds.items()}
    numbers: dict[str, float] = {}
    for name, probs in {"reference": world.probs, **policies}.items():
        numbers |= _named(f"looks_{name}", markup.shares(world, probs))
        numbers[f"looks_{name}_gold"] = float(probs @ world.gold)
        numbers[f"looks_{name}_judge"] = chain.win_rate(world, probs, world.gold + liked)
        numbers[f"looks_{name}_true"] = chain.win_rate(world, probs, world.gold)
    return numbers


def one_seed(seed: int, pairs: int = chain.PAIRS, games: int = 800) -> dict[str, float]:
    """All of it."""
    numbers = without_error() | length(seed, pairs, games) | looks(seed, pairs)
    for strength in STRENGTHS:
        numbers |= _named(f"chatty_{strength:g}", chatty.told(strength))
    return numbers


def probe() -> dict[str, float | str]:
    """A few pairs."""
    return dict(one_seed(0, pairs=100, games=150))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
