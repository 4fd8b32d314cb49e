"""Chapter 02 over five seeds: ``python -m minirlhf_course.chapters.ch02_language_models.study`` (about six minutes on one core).

Seed 0 trains the very models of the zoo that the notebook loads; the others tell how much depends on that.
"""

import copy
import math
from dataclasses import replace
from functools import partial

import torch

from minirlhf.core.logprobs import token_logps
from minirlhf.core.masking import masked_sum
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.collate import collate
from minirlhf.data.tasks.phrasebook import ENGLISH, LANGUAGES, predictive
from minirlhf.data.types import Tokens
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained, with_seed
from minirlhf.trainers.evaluation import Candidates, candidates
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

TEMPERATURES, TOP_PS = (0.3, 0.6, 1.0, 1.5), (0.5, 0.8, 1.0)
FORGETFUL = SFTConfig(max_steps=40, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")


def drawn_from(policy: Trained, seed: int, num_generations: int = 8, stream: int = 0, **how: float) -> Candidates:
    """Replies to every test prompt of the assistant world, graded."""
    world = tasks.get("assistant")
    return candidates(
        policy.model,
        task_problems(world, "test"),
        task_reward(world),
        tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=world.max_completion_length, **how),
        num_generations=num_generations,
        seed=1000 * (stream + 1) + seed,
    )


def assistant(seed: int) -> dict[str, float]:
    """Diversity and reward over the sampling grid, a temperature forgotten, an end that is never learned."""
    world = tasks.get("assistant")
    base = pipeline.pretrain(world, with_seed(pipeline.PretrainPlan(), seed), quiet=True)
    sft = pipeline.sft(world, base, with_seed(pipeline.SFTPlan(), seed), quiet=True)

    draw, numbers = partial(drawn_from, sft, seed), {}
    for temperature in TEMPERATURES:
        for top_p in TOP_PS:
            drawn = draw(temperature=temperature, top_p=top_p)
            at = f"at_T{temperature}_p{top_p}"
            numbers |= {f"mean_{at}": drawn.average.mean, f"best_{at}": drawn.best.mean}
            numbers |= {f"gap_{at}": drawn.gap.mean, f"distinct_{at}": drawn.distinct.mean}
    ladder = [draw(2, stream, temperature=t).rewards for stream, t in enumerate((0.3, 0.6, 1.0, 1.5))]
    rewards = torch.cat(ladder, 1)  # (P, 8): two replies at each temperature
    numbers |= {"mean_ladder": float(rewards.mean()), "best_ladder": float(rewards.amax(1).mean())}
    numbers["gap_ladder"] = float((rewards.amax(1) - rewards.amin(1)).mean())
    numbers["mean_greedy"] = draw(1, greedy=True).average.mean
    return numbers | ratios(sft.model, draw) | endings(base, seed)


def ratios(model: torch.nn.Module, draw) -> dict[str, float]:
    """The ratio of a policy to itself, once with the temperature forgotten, once against the truncated distribution.

    The latter is the importance weight of a token; that of a reply is the product of its tokens'.
    """
    numbers = {}
    for name, how, temperature in (("hot", {"temperature": 1.5}, 1.0), ("cut", {"top_p": 0.9}, 1.0)):
        rollout = draw(**how).rollout
        with torch.no_grad():
            logps = completion_logps(
                model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature
            )
        old = rollout.behavior_logps if name == "cut" else rollout.old_logps
        ratio = (logps - old).exp()[rollout.mask]
        numbers[f"ratio_{name}"] = float(ratio.mean())
        numbers[f"outside_{name}"] = float(((ratio - 1).abs() > 0.2).float().mean())
        replies = torch.where(rollout.mask, logps - old, 0.0).sum(-1).exp()
        numbers[f"ratio_of_replies_{name}"] = float(replies.mean())
    return numbers


def blind(shown: list[Tokens], eos: int) -> list[Tokens]:
    """The same examples, the end not among the labels."""
    return [Tokens(x.input_ids, [m and i != eos for i, m in zip(x.input_ids, x.loss_mask, strict=True)]) for x in shown]


def endings(base: Trained, seed: int) -> dict[str, float]:
    """Share of replies that end, after fine-tuning with and without the end of the sequence among the labels."""
    world, numbers = tasks.get("assistant"), {}
    shown = pipeline.demonstrations(world, base.tokenizer, 1280, seed)
    for name, examples in (("labelled", shown), ("unlabelled", blind(shown, base.tokenizer.eos_token_id))):
        model = copy.deepcopy(base.model)
        settings = with_seed(pipeline.SFTPlan(training=FORGETFUL), seed).training
        history = train_sft(model, examples, settings, pad_token_id=base.tokenizer.pad_token_id, quiet=True)
        rollout = candidates(
            model,
            task_problems(world, "test"),
            task_reward(world),
            tokenizer=base.tokenizer,
            sampling=Sampling(max_completion_length=world.max_completion_length),
            num_generations=1,
            seed=seed,
        ).rollout
        numbers[f"ended_{name}"] = float(rollout.terminated.float().mean())
        numbers[f"loss_{name}"] = sum(history["loss"][-10:]) / 10
    return numbers


def shell_game(seed: int) -> dict[str, float]:
    """Right answers with and without a chain of thought, and the loss in its parts."""
    world = tasks.get("shell_game")
    sft = pipeline.sft_from_scratch(world, with_seed(pipeline.SHELL_GAME_SFT, seed), quiet=True)
    prompts, tokenizer, numbers = world.prompts("test")[:400], sft.tokenizer, {}
    for name, first in (("free", ""), ("blurts", "answer"), ("thinks", "think")):
        begun = [encode_prompt(tokenizer, conversation(p)) + tokenizer(first).input_ids for p in prompts]
        for way, how in (("greedy", {"greedy": True}), ("sampled", {}), ("hot", {"temperature": 1.5})):
            rollout = sample(
                sft.model,
                begun,
                sampling=Sampling(max_completion_length=world.max_completion_length, **how),
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                seed=1000 + seed,
            )
            replies = tokenizer.batch_decode(rollout.completion_ids, skip_special_tokens=True)
            right = [world.grade(p, f"{first} {reply}") for p, reply in zip(prompts, replies, strict=True)]
            numbers[f"right_{name}_{way}"] = sum(right) / len(right)
    chains = [world.reference(p) for p in prompts]
    losses = {
        "chain": nlls(sft, prompts, chains),
        "bare": nlls(sft, prompts, [f"answer {chain.split()[-1]}" for chain in chains]),
    }
    share = world.thinking_share
    numbers |= {f"nll_{name}": value for name, value in losses.items()}
    numbers["nll"] = share * losses["chain"] + (1 - share) * losses["bare"]
    numbers["kl_from_demonstrations"] = numbers["nll"] + share * math.log(share) + (1 - share) * math.log(1 - share)
    return numbers


def nlls(policy: Trained, prompts: list[str], replies: list[str]) -> float:
    """Mean negative log-likelihood of the replies, in nats each."""
    batch = collate(
        [pipeline.completion_tokens(policy.tokenizer, p, r) for p, r in zip(prompts, replies, strict=True)],
        policy.tokenizer.pad_token_id,
    )
    with torch.no_grad():
        logits = policy.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
    return float(-masked_sum(token_logps(logits, batch.input_ids), batch.loss_mask[:, 1:], -1).mean())


def phrasebook(seed: int) -> dict[str, float]:
    """Surprise at the next word and right translations, after 0 to 7 examples; the perfect reader's beside them."""
    world = tasks.get("phrasebook")
    return read_pages(pipeline.pretrain(world, with_seed(pipeline.PHRASEBOOK_PRETRAIN, seed), quiet=True), seed, 1000)


def read_pages(trained: Trained, seed: int, count: int) -> dict[str, float]:
    """The same on so many new pages."""
    world, rng, tokenizer = tasks.get("phrasebook"), numpy_generator("pages", seed), trained.tokenizer
    pages, languages = zip(*(world.page(rng) for _ in range(count)), strict=True)
    ids = torch.tensor([tokenizer(page).input_ids for page in pages])
    with torch.no_grad():
        logits = trained.model(input_ids=ids).logits
    logps = token_logps(logits, ids)
    numbers = {}
    for examples in range(8):
        place = 4 * examples + 1  # of ">", which predicts the translation
        guesses = tokenizer.convert_ids_to_tokens(logits[:, place].argmax(-1).tolist())
        perfect, right = 0.0, 0
        for page, language, guess in zip(pages, languages, guesses, strict=True):
            words = page.split()
            perfect -= math.log(predictive(" ".join(words[: place + 1]))[words[place + 1]]) / len(pages)
            right += LANGUAGES[language][ENGLISH.index(words[place - 1])] == guess
        numbers[f"surprise_after_{examples}"] = float(-logps[:, place].mean())
        numbers[f"perfect_after_{examples}"] = perfect
        numbers[f"right_after_{examples}"] = right / len(pages)
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Everything that the chapter measures."""
    return assistant(seed) | shell_game(seed) | phrasebook(seed)


def probe() -> dict[str, float | str]:
    """Two steps of every training, a reply to each prompt in every way of sampling, and the surprise on a few pages."""
    base, sft, numbers = initial_models.assistant()
    player, more = initial_models.shell_game()
    numbers |= more | ratios(sft.model, partial(drawn_from, sft, 0, 2))
    for name, how in {"cool": {"temperature": 0.6}, "cut": {"top_p": 0.8}, "greedy": {"greedy": True}}.items():
        drawn = drawn_from(sft, 0, 1, **how)
        numbers |= {f"{name}_logp": float(drawn.rollout.old_logps.mean()), f"{name}_mean": drawn.average.mean}
    shown = pipeline.demonstrations(tasks.get("assistant"), base.tokenizer, 64, 0)
    for name, examples in (("labelled", shown), ("unlabelled", blind(shown, base.tokenizer.eos_token_id))):
        model, config = copy.deepcopy(base.model), replace(FORGETFUL, max_steps=2)
        numbers |= trace(name, train_sft(model, examples, config, pad_token_id=base.tokenizer.pad_token_id, quiet=True))
    game = tasks.get("shell_game")
    prompts = game.prompts("test")[:16]
    numbers["nll"] = nlls(player, prompts, [game.reference(p) for p in prompts])
    reader = pipeline.pretrain(tasks.get("phrasebook"), brief(pipeline.PHRASEBOOK_PRETRAIN, documents=200), quiet=True)
    numbers |= trace("phrasebook", reader.history) | read_pages(reader, 0, 20)
    return numbers | settings(phrasebook=pipeline.PHRASEBOOK_PRETRAIN, forgetful=FORGETFUL)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
