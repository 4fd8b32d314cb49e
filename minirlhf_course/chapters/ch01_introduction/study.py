"""What each kind of feedback does to one model, over five seeds: ``python -m minirlhf_course.chapters.ch01_introduction.study`` (some four minutes).

The models of the zoo are fixed (``minirlhf_course/tour/study.py`` varies those too); what varies is every sample drawn and every training run of
chapter 01: RL, learning from winners, losers and both, skipping SFT, tuning on six animals, merging specialists, and the garden, four
times each. Writes ``study.json``.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import fmean

import torch
from torch import Tensor

from minirlhf.core import exact_mdp
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import PLAIN
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import ANIMALS, FACTS, features
from minirlhf.data.types import PreferenceExample
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.preference_losses import PairLogps, dpo
from minirlhf.feedback.facets import content, facet_reward, manners
from minirlhf.feedback.rewards import model_reward, task_problems, task_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.merging import merge
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import GRPO
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import RewardPlan, RLPlan, Trained, completion_tokens, pair_tokens, preferences, with_seed
from minirlhf.tabular.grid import GARDEN, GARDEN_WISHES
from minirlhf.trainers.evaluation import Candidates, Evaluation, candidates, evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch01_introduction import human_feedback as hf
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

COUNTS = [25, 50, 100, 200, 400, 800]
GARDENS = 4  # for each seed
EPISODES = (1, 2, 4, 8, 16)
WALKS = 8  # copies of the owner for each seed
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
EVALUATIONS = 4  # of each merged model, each with one reply to every test prompt
WORLD = tasks.get("assistant")
LIMIT = Sampling(max_completion_length=WORLD.max_completion_length)
RL = RLPlan(training=OnlineConfig(max_steps=35, batch_size=8, num_generations=8, learning_rate=3e-4))
STRAIGHT_RL = replace(RL, recipe=GRPO.with_(beta=0.1), training=replace(RL.training, max_steps=30))
SPECIALIST = replace(STRAIGHT_RL, training=replace(RL.training, max_steps=20, learning_rate=5e-4))


def load(name: str) -> Trained:
    """A policy of the zoo."""
    return Trained(*zoo.load(name, quiet=True), History())


def ask(policy: Trained, seed: int) -> Evaluation:
    """One reply to each test prompt, graded by the truth."""
    problems, gold = task_problems(WORLD, "test"), task_reward(WORLD)
    return evaluate(policy.model, problems, gold, tokenizer=policy.tokenizer, sampling=LIMIT, seed=1000 + seed)


def sums(policy: Trained, part: list[PreferenceExample]) -> Tensor:
    """log π of the chosen and of the rejected replies, (2, N)."""
    batch = collate([t.chosen for t in part] + [t.rejected for t in part], policy.tokenizer.pad_token_id)
    logps = completion_logps(policy.model, batch.input_ids, batch.attention_mask, batch.input_ids.shape[1] - 1)
    return (logps * batch.loss_mask[:, 1:]).sum(-1).view(2, -1)


def learn_from(
    start: Trained, data: list[PreferenceExample], loss_of: Callable[[PairLogps], Tensor], seed: int, steps: int = 40
) -> Trained:
    """A copy of ``start``, trained on pairs."""
    policy = replace(start, model=copy.deepcopy(start.model))
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=3e-4, weight_decay=0.0)
    with torch.no_grad():
        old = sums(start, data)
    for step in range(steps):
        some = list(batch_indices(len(data), 32, step, seed))
        loss = loss_of(PairLogps(*sums(policy, [data[i] for i in some]), *old[:, some])).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimiser.step()
    return policy


@torch.no_grad()
def moved(policy: Trained, start: Trained, data: list[PreferenceExample]) -> tuple[float, float]:
    """How far the winners' mean log-probability has moved, and the share of pairs in which the winner gained more."""
    gains = sums(policy, data) - sums(start, data)
    return float(gains[0].mean()), float((gains[0] > gains[1]).float().mean())


def the_stages(base: Trained, sft: Trained, seed: int) -> dict[str, float]:
    """Base, SFT and RL."""
    reward = model_reward(*zoo.load("assistant-reward", quiet=True))
    rl = pipeline.rl(WORLD, sft, with_seed(RL, seed), reward=reward, quiet=True)
    gold = {name: ask(policy, seed).reward.mean for name, policy in (("base", base), ("sft", sft), ("rl", rl))}
    return {f"gold_{name}": value for name, value in gold.items()} | {"rl_gain": gold["rl"] - gold["sft"]}


def the_tries(base: Trained, sft: Trained, seed: int) -> dict[str, float]:
    """256 replies of the base to each of eight prompts: the shares that earn at least 1 and that are empty, and the best of n. Beside them the
    mean over as many of the fine-tuned model."""

    def drawn_from(policy: Trained) -> Candidates:
        return candidates(
            policy.model,
            task_problems(WORLD, "test")[:8],
            task_reward(WORLD),
            tokenizer=policy.tokenizer,
            sampling=LIMIT,
            num_generations=256,
            seed=5 + seed,
        )

    drawn = drawn_from(base)
    empty = sum(text == "" for texts in drawn.completions for text in texts) / drawn.rewards.numel()
    curve = best_of_n_curve(drawn.rewards.double()).mean(0)
    same = {"sft_same_prompts": float(drawn_from(sft).rewards.double().mean())}
    return (
        same
        | {"base_good": float((drawn.rewards >= 1).double().mean()), "base_empty": empty}
        | {f"base_best_of_{n}": float(curve[n - 1]) for n in (16, 64, 256)}
    )


def the_pairs(base: Trained, sft: Trained, turns: Trained, seed: int) -> dict[str, float]:
    """Winners only, losers only, both; and both from the base. Then RL from the base."""
    plan = RewardPlan(pairs=600, held_out=200)
    pairs, unseen = (pair_tokens(sft.tokenizer, part) for part in preferences(WORLD, sft, with_seed(plan, seed)))
    winners = learn_from(sft, pairs, lambda pair: -pair.chosen, seed)
    losers = learn_from(sft, pairs, lambda pair: pair.rejected, seed, steps=25)
    both = learn_from(sft, pairs, contrast, seed)
    straight = learn_from(turns, pairs, contrast, seed)
    found = {"winners": winners, "losers": losers, "both": both, "dpo_base": straight}
    numbers = {f"{name}_gold": ask(policy, seed).reward.mean for name, policy in found.items()}
    numbers["contrast_gain"] = numbers["both_gold"] - numbers["winners_gold"]
    numbers["losers_winner_fell"] = moved(losers, sft, unseen)[0]
    numbers["dpo_sft_accuracy"] = moved(both, sft, unseen)[1]
    numbers["dpo_base_accuracy"] = moved(straight, turns, unseen)[1]
    mute = ask(pipeline.rl(WORLD, base, with_seed(STRAIGHT_RL, seed), quiet=True), seed)
    numbers |= {"rl_base_gold": mute.reward.mean, "rl_base_length": mute.length.mean}
    numbers["rl_base_empty"] = sum(text == "" for text in mute.completions) / len(mute.completions)
    return numbers


def contrast(pair: PairLogps) -> Tensor:
    """DPO's loss."""
    return dpo(pair, beta=0.1)


def six_animals(base: Trained, sft: Trained, seed: int) -> dict[str, float]:
    """Demonstrations about six animals; the share of replies that tell something true, for those and for the other two."""
    known, other = ANIMALS[:6], ANIMALS[6:]
    prompts = [p for p in WORLD.prompts("train") if {w for w in p.split() if w in FACTS} <= set(known)]
    rng = numpy_generator("six animals", seed)
    asked = (prompts[i % len(prompts)] for i in range(2000))
    shown = [completion_tokens(sft.tokenizer, p, WORLD.demonstration(p, rng)) for p in asked]
    tuned = copy.deepcopy(base.model)
    plan = SFTConfig(max_steps=80, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear", seed=seed)
    train_sft(tuned, shown, plan, pad_token_id=sft.tokenizer.pad_token_id, quiet=True)
    asks = ("tell me about {}", "tell me what {} do", "what do {} do?", "please tell me about {}")
    numbers = {}
    for name, group in (("known", known), ("other", other)):
        texts = [a.format(x) for x in group for a in asks for _ in range(64 // len(group))]
        problems = [Problem([{"role": "user", "content": text}]) for text in texts]
        found = evaluate(tuned, problems, task_reward(WORLD), tokenizer=sft.tokenizer, sampling=LIMIT, seed=7 + seed)
        hits = [features(text, reply).facts > 0 for text, reply in zip(texts, found.completions, strict=True)]
        numbers[f"{name}_on_topic"] = sum(hits) / len(hits)
    return numbers


def shuffled(model: torch.nn.Module) -> torch.nn.Module:
    """The same function, with the hidden units of each layer in another order."""
    other = copy.deepcopy(model)
    for layer in other.model.layers:
        order = torch.randperm(layer.mlp.gate_proj.weight.shape[0], generator=generator("shuffle"))
        for part in (layer.mlp.gate_proj, layer.mlp.up_proj):
            part.weight.data = part.weight.data[order]
        layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.data[:, order]
    return other


def specialists(sft: Trained, seed: int) -> dict[str, float]:
    """Two specialists, their mergers, and the merger with a shuffled copy."""
    plan = with_seed(SPECIALIST, seed)
    one, two = (
        pipeline.rl(WORLD, sft, plan, reward=facet_reward(facet), quiet=True).model for facet in (content, manners)
    )

    def gold(model: torch.nn.Module) -> float:
        rounds = (ask(replace(sft, model=model), seed + 50 + 100 * i) for i in range(EVALUATIONS))
        return fmean(found.reward.mean for found in rounds)

    numbers = {f"merged_{share:g}_gold": gold(merge([one, two], [1 - share, share])) for share in SHARES}
    ends = numbers["merged_0_gold"], numbers["merged_1_gold"]
    for share in SHARES[1:-1]:
        merged = numbers[f"merged_{share:g}_gold"]
        numbers[f"merge_{share:g}_over_chord"] = merged - (1 - share) * ends[0] - share * ends[1]
        numbers[f"merge_{share:g}_over_better"] = merged - max(ends)
    relative = shuffled(two)
    numbers["shuffled_gold"] = gold(relative)
    numbers["shuffled_merge_gold"] = gold(merge([one, relative], [0.5, 0.5]))
    return numbers


def the_garden(seed: int, counts: list[int] = COUNTS, gardens: int = GARDENS) -> dict[str, float]:
    """Worth of the policies that three kinds of feedback teach, by the number of answers, in four gardens."""
    still, wishes, start = GARDEN.transitions(), GARDEN.values_of(GARDEN_WISHES), GARDEN.start()
    rewards = still @ wishes
    wanted = hf.best_action_values(still, rewards)
    numbers = {}
    for i in range(gardens):
        answers = hf.ask_for_comparisons(still, wishes, counts[-1], rng=generator("comparisons", seed, i))
        policies = {
            "comparing": [hf.plan(still, hf.fit_cell_values(answers.head(n), GARDEN.size)) for n in counts],
            "TAMER": hf.tamer(still, wanted, start, counts, rng=generator("tamer", seed, i)),
            "COACH": hf.coach(still, rewards, start, counts, rng=generator("coach", seed, i)),
        }
        for name, learned in policies.items():
            for n, policy in zip(counts, learned, strict=True):
                worth = exact_mdp.expected_return(start, still, rewards, policy, gamma=1.0, steps=hf.PATIENCE)
                numbers[f"garden_{name}_{n}_{i}"] = float(worth)
    return numbers


def the_walks(seed: int, episodes: tuple[int, ...] = EPISODES, walks: int = WALKS) -> dict[str, float]:
    """Worth in the wind of robots that copied the owner's walks: on still days, in the wind, or corrected where the robot walked."""
    still, windy, wishes = GARDEN.transitions(), GARDEN.transitions(0.2), GARDEN.values_of(GARDEN_WISHES)
    start, owner = GARDEN.start(), hf.plan(windy, wishes)

    def worth(policy: Tensor) -> float:
        rewards = windy @ wishes
        return float(exact_mdp.expected_return(start, windy, rewards, policy, gamma=1.0, steps=hf.PATIENCE))

    def copied(weather: Tensor, n: int, rng: torch.Generator) -> float:
        return worth(hf.clone(owner, hf.visited(weather, owner, start, n, rng)))

    ways: dict[str, Callable[[int, torch.Generator], float]] = {
        "still": lambda n, rng: copied(still, n, rng),
        "windy": lambda n, rng: copied(windy, n, rng),
        "corrected": lambda n, rng: worth(hf.clone_and_correct(windy, owner, start, n, rng)),
    }
    return {"walk_owner": worth(owner)} | {
        f"walk_{name}_{n}": fmean(way(n, generator("walks", seed, name, n, i)) for i in range(walks))
        for name, way in ways.items()
        for n in episodes
    }


def without_template(base: Trained) -> Trained:
    """The same model, which reads a bare prompt."""
    raw = copy.deepcopy(base.tokenizer)
    raw.chat_template = PLAIN
    return replace(base, tokenizer=raw)


@cache
def zoo_starts() -> tuple[Trained, Trained, Trained]:
    """The base with a bare prompt, after fine-tuning, and the base that is asked in turns."""
    base, sft = load("assistant-base"), load("assistant-sft")
    return without_template(base), sft, replace(base, tokenizer=sft.tokenizer)


def one_seed(seed: int) -> dict[str, float]:
    """Every run of the chapter with one seed."""
    base, sft, turns = zoo_starts()
    return (
        the_stages(base, sft, seed)
        | the_tries(base, sft, seed)
        | the_pairs(base, sft, turns, seed)
        | six_animals(base, sft, seed)
        | specialists(sft, seed)
        | the_garden(seed)
        | the_walks(seed)
    )


def probe() -> dict[str, float | str]:
    """Two steps of every kind of training, from a brief start; a garden with few answers."""
    base, sft, numbers = initial_models.assistant()
    base = without_template(base)
    pairs, _ = preferences(WORLD, sft, initial_models.FEW_PAIRS)
    judge = pipeline.reward_model(sft, pairs, initial_models.FEW_PAIRS, quiet=True)
    few = {"batch_size": 4, "num_generations": 4}
    reward, data = model_reward(judge.model, judge.tokenizer), pair_tokens(sft.tokenizer, pairs)
    trained = {
        "reward": judge,
        "rl": pipeline.rl(WORLD, sft, brief(RL, **few), reward=reward, quiet=True),
        "mute": pipeline.rl(WORLD, base, brief(STRAIGHT_RL, **few), quiet=True),
        "content": pipeline.rl(WORLD, sft, brief(SPECIALIST, **few), reward=facet_reward(content), quiet=True),
        "manners": pipeline.rl(WORLD, sft, brief(SPECIALIST, **few), reward=facet_reward(manners), quiet=True),
    }
    for name, policy in trained.items():
        numbers |= trace(name, policy.history)
    merged = merge([trained["content"].model, trained["manners"].model], [0.25, 0.75])
    learned = {
        "merged": replace(sft, model=merged),
        "winners": learn_from(sft, data, lambda pair: -pair.chosen, 0, steps=2),
        "losers": learn_from(sft, data, lambda pair: pair.rejected, 0, steps=2),
        "both": learn_from(sft, data, contrast, 0, steps=2),
    }
    for name, policy in learned.items():
        numbers[f"{name}_moved"] = moved(policy, sft, data)[0]
    numbers["sft_gold"] = ask(sft, 0).reward.mean
    plans = {name: zoo.get(f"assistant-{name}").plan for name in ("base", "sft", "reward")}
    plain = settings(**plans, rl=RL, straight=STRAIGHT_RL, specialist=SPECIALIST)
    return numbers | the_garden(0, [10, 20], 1) | the_walks(0, (1, 4), 2) | plain


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
