"""Chapter 01's comparisons with a learning rate and a length of training chosen for each arm: ``python -m minirlhf_course.chapters.ch01_introduction.study_tuned``.

Three things that ``study.py`` leaves to one setting. Each use of the 600 pairs (chosen completions only, rejected only, DPO) is trained with
the setting that was best on the seeds of ``study_tuning.py``, which serve for nothing else. RL from the base runs on past its plateau.
COACH learns with two more learning rates. A model that has imitated demonstrations about six animals goes on with RL on prompts about the same
six, and is asked about the other two. The models of the zoo are fixed, as in ``study.py``. Writes ``study_tuned.json``; some ten minutes.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from minirlhf.core import exact_mdp
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.data.collate import batch_indices
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import ANIMALS, FACTS, features
from minirlhf.data.types import PreferenceExample
from minirlhf.equations.preference_losses import PairLogps
from minirlhf.feedback.rewards import task_reward
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained, completion_tokens, pair_tokens, preferences, with_seed
from minirlhf.tabular.grid import GARDEN, GARDEN_WISHES
from minirlhf.trainers.evaluation import Evaluation, evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch01_introduction import human_feedback as hf
from minirlhf_course.chapters.ch01_introduction.study import (
    COUNTS,
    GARDENS,
    LIMIT,
    STRAIGHT_RL,
    WORLD,
    ask,
    contrast,
    moved,
    sums,
    without_template,
    zoo_starts,
)
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

Pairs = list[PreferenceExample]

PAIRS = RewardPlan(pairs=600, held_out=200)
LOSSES: Mapping[str, Callable[[PairLogps], Tensor]] = {
    "chosen": lambda pair: -pair.chosen,
    "rejected": lambda pair: pair.rejected,
    "both": contrast,
}
#: Learning rate and number of steps of each use: the best of ``study_tuning.json``.
BEST = {"chosen": (1e-3, 120), "rejected": (1e-4, 25), "both": (1e-4, 80)}
LONG_RL = replace(STRAIGHT_RL, training=replace(STRAIGHT_RL.training, max_steps=300))
ROUNDS = 2  # completions of every test prompt
WINDOW = 20  # steps over which the reward of a run is averaged
READ_AT = (40, 100, 200, 300)  # steps at which the mean of the last WINDOW is read
KNOWN = 6  # animals that are demonstrated
SIX_SFT = SFTConfig(max_steps=80, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")
SIX_RL = OnlineConfig(
    max_steps=100,
    learning_rate=3e-4,
    batch_size=8,
    num_generations=8,
    max_completion_length=WORLD.max_completion_length,
)
ASKS = ("tell me about {}", "tell me what {} do", "what do {} do?", "please tell me about {}")
COACH_RATES = (0.1, 1.6)  # beside 0.4, of ``study.py``


def train_on(
    start: Trained, data: Pairs, use: str, seed: int, learning_rate: float, lengths: Sequence[int]
) -> Iterator[tuple[int, Trained]]:
    """Train a copy of ``start`` on pairs by one of :data:`LOSSES`; yield it after each of ``lengths`` steps, increasing."""
    policy = replace(start, model=copy.deepcopy(start.model))
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=learning_rate, weight_decay=0.0)
    with torch.no_grad():
        old = sums(start, data)
    for step in range(lengths[-1]):
        some = list(batch_indices(len(data), 32, step, seed))
        loss = LOSSES[use](PairLogps(*sums(policy, [data[i] for i in some]), *old[:, some])).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimiser.step()
        if step + 1 in lengths:
            yield step + 1, policy


def gold(policy: Trained, seed: int) -> float:
    """Return the mean gold reward over :data:`ROUNDS` completions of every test prompt."""
    return fmean(ask(policy, seed + 50 + 100 * i).reward.mean for i in range(ROUNDS))


def the_pairs(sft: Trained, seed: int) -> dict[str, float]:
    """Return the gold reward before training and after each use of the same pairs."""
    text, held = preferences(WORLD, sft, with_seed(PAIRS, seed))
    pairs, unseen = pair_tokens(sft.tokenizer, text), pair_tokens(sft.tokenizer, held)
    numbers = {"sft_gold": gold(sft, seed)}
    for use, (rate, steps) in BEST.items():
        for _, policy in train_on(sft, pairs, use, seed, rate, [steps]):
            numbers[f"{use}_gold"] = gold(policy, seed)
            numbers[f"{use}_logp_gain"], numbers[f"{use}_accuracy"] = moved(policy, sft, unseen)
    return numbers


def shares(found: Evaluation) -> dict[str, float]:
    """Return what the completions consist of, on average."""
    counts = [
        features(p.prompt[-1]["content"], text) for p, text in zip(found.problems, found.completions, strict=True)
    ]
    return {
        "facts": fmean(one.facts for one in counts),
        "polite": fmean(one.polite > 0 for one in counts),
        "praise": fmean(one.praise > 0 for one in counts),
        "empty": fmean(text == "" for text in found.completions),
        "length": found.length.mean,
        "gold": found.reward.mean,
    }


def long_rl(base: Trained, sft: Trained, seed: int) -> dict[str, float]:
    """Train the base model by RL with the gold reward, far past the step at which empty completions are frequent."""
    policy = pipeline.rl(WORLD, base, with_seed(LONG_RL, seed), quiet=True)
    reward, length = policy.history["reward"], policy.history["completion_length"]
    numbers = {f"rl_reward_{n}": fmean(reward[n - WINDOW : n]) for n in READ_AT}
    numbers |= {f"rl_length_{n}": fmean(length[n - WINDOW : n]) for n in READ_AT}
    for name, one in (("rl", policy), ("sft", sft)):
        numbers |= {f"{name}_end_{key}": value for key, value in shares(ask(one, seed)).items()}
    return numbers


def on_topic(policy: Trained, seed: int, repeats: int = 64) -> dict[str, float]:
    """Return the fractions of completions that state a true fact about the animal in the prompt, for the demonstrated animals and the others."""
    numbers = {}
    for name, group in (("known", ANIMALS[:KNOWN]), ("other", ANIMALS[KNOWN:])):
        texts = [a.format(x) for x in group for a in ASKS for _ in range(repeats // len(group))]
        problems = [Problem([{"role": "user", "content": text}]) for text in texts]
        found = evaluate(
            policy.model, problems, task_reward(WORLD), tokenizer=policy.tokenizer, sampling=LIMIT, seed=7 + seed
        )
        numbers[name] = fmean(features(text, said).facts > 0 for text, said in zip(texts, found.completions, strict=True))  # fmt: skip
    return numbers


def six_animals(
    base: Trained, sft: Trained, seed: int, imitation: SFTConfig = SIX_SFT, trial: OnlineConfig = SIX_RL
) -> dict[str, float]:
    """Imitate demonstrations about six animals, then train by RL with the gold reward on prompts about the same six."""
    prompts = [p for p in WORLD.prompts("train") if {w for w in p.split() if w in FACTS} <= set(ANIMALS[:KNOWN])]
    rng = numpy_generator("six animals", seed)
    asked = (prompts[i % len(prompts)] for i in range(2000))
    shown = [completion_tokens(sft.tokenizer, p, WORLD.demonstration(p, rng)) for p in asked]
    start = Trained(copy.deepcopy(base.model), sft.tokenizer, History())
    train_sft(start.model, shown, replace(imitation, seed=seed), pad_token_id=sft.tokenizer.pad_token_id, quiet=True)
    numbers = {f"six_sft_{name}": value for name, value in on_topic(start, seed).items()}
    problems = [Problem([{"role": "user", "content": text}]) for text in prompts]
    policy, reward = replace(start, model=copy.deepcopy(start.model)), task_reward(WORLD)
    config = replace(trial, seed=seed)
    train_online(policy.model, problems, reward, LONG_RL.recipe, config, tokenizer=sft.tokenizer, quiet=True)
    numbers |= {f"six_rl_{name}": value for name, value in on_topic(policy, seed).items()}
    return numbers


def the_coaches(seed: int, counts: list[int] = COUNTS, gardens: int = GARDENS) -> dict[str, float]:
    """Return the expected return of COACH's policies, by learning rate and number of labels."""
    still, wishes, start = GARDEN.transitions(), GARDEN.values_of(GARDEN_WISHES), GARDEN.start()
    rewards = still @ wishes
    numbers = {}
    for rate in COACH_RATES:
        for i in range(gardens):
            rng = generator("coach", seed, i)
            learned = hf.coach(still, rewards, start, counts, rng=rng, learning_rate=rate)
            for n, policy in zip(counts, learned, strict=True):
                value = exact_mdp.expected_return(start, still, rewards, policy, gamma=1.0, steps=hf.PATIENCE)
                numbers[f"coach_{rate:g}_{n}_{i}"] = float(value)
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Do every run with one seed."""
    base, sft, _ = zoo_starts()
    return the_pairs(sft, seed) | long_rl(base, sft, seed) | six_animals(base, sft, seed) | the_coaches(seed)


def probe() -> dict[str, float | str]:
    """Train two steps of every kind from a briefly trained model; a garden with few labels."""
    base, sft, numbers = initial_models.assistant()
    pairs, _ = preferences(WORLD, sft, initial_models.FEW_PAIRS)
    data = pair_tokens(sft.tokenizer, pairs)
    for use in LOSSES:
        for _, policy in train_on(sft, data, use, 0, 3e-4, [2]):
            numbers[f"{use}_moved"] = moved(policy, sft, data)[0]
    short = brief(LONG_RL, batch_size=4, num_generations=4)
    numbers |= trace("rl", pipeline.rl(WORLD, without_template(base), short, quiet=True).history)
    numbers |= {f"sft_{key}": value for key, value in shares(ask(sft, 0)).items()}
    few = replace(SIX_SFT, max_steps=2), replace(SIX_RL, max_steps=1, batch_size=4, num_generations=4)
    numbers |= six_animals(base, sft, 0, *few)
    sizes = {
        f"{use}: {name}": size for use, best in BEST.items() for name, size in zip(("rate", "steps"), best, strict=True)
    }
    return (
        numbers
        | the_coaches(0, [10, 20], 1)
        | sizes
        | settings(pairs=PAIRS, rl=LONG_RL, six_sft=SIX_SFT, six_rl=SIX_RL)
    )


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
