"""More answers in place of more training: votes, learned verifiers and best-of-n in the shell game, against the tokens that they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.chapters.ch16_reasoning.shell import WORLD, answer
from minirlhf.core.masking import lengths
from minirlhf.core.randomness import generator
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.tasks.shell_game import CUPS, SHELL_GAME
from minirlhf.data.types import Stepped, Tokens, labelled
from minirlhf.equations.estimators import pass_at_k
from minirlhf.equations.reasoning import vote_totals
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.heads import ValueModel
from minirlhf.models.sampling import Sampling
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import candidates
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process


@dataclass(frozen=True)
class InferencePlan:
    """How much is sampled and learned."""

    prompts: int = 150
    tries: int = 32
    labelled: int = 500
    of_each: int = 4
    outcome: OutcomeConfig = OutcomeConfig(max_steps=150, batch_size=64, learning_rate=1e-3, lr_scheduler_type="linear")
    process: ProcessConfig = ProcessConfig(max_steps=150, batch_size=64, learning_rate=1e-3, lr_scheduler_type="linear")
    subsets: int = 16


@dataclass(frozen=True)
class Tries:
    """Several replies to each of some prompts; ``(P, N)`` each.

    Attributes:
        prompts: the P prompts.
        texts: P lists of N replies.
        right: 0 or 1.
        answers: the number of the cup; a reply without one has a number of its own.
        tokens: how many it took.
        logps: of the whole reply, in nats.
    """

    prompts: list[str]
    texts: list[list[str]]
    right: Tensor
    answers: Tensor
    tokens: Tensor
    logps: Tensor


def sample_tries(policy: Trained, split: str, first: int, count: int, tries: int, seed: int) -> Tries:
    """Replies to ``count`` prompts of a split, from the prompt number ``first`` on."""
    problems = task_problems(WORLD, "test" if split == "test" else "train")[first : first + count]
    drawn = candidates(
        policy.model, problems, task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), num_generations=tries, seed=seed,
    )  # fmt: skip
    said = [answer(text) for texts in drawn.completions for text in texts]
    numbers = torch.tensor([len(CUPS) + i if cup is None else cup for i, cup in enumerate(said)])
    grouped = drawn.rollout.grouped
    return Tries(
        [problem.prompt[-1]["content"] for problem in problems],
        drawn.completions,
        drawn.rewards,
        numbers.view(drawn.rewards.shape),
        grouped(lengths(drawn.rollout.mask)).double(),
        grouped((drawn.rollout.old_logps * drawn.rollout.mask).sum(-1)),
    )


def _steps(policy: Trained, prompt: str, text: str) -> tuple[Tokens, tuple[int, ...], tuple[int, ...]]:
    """A reply, the place of each cup that it names, and whether it is the right one: 1 or −1."""
    tokens = pipeline.reply_tokens(policy.tokenizer, prompt, text)
    begin = len(encode_prompt(policy.tokenizer, conversation(prompt)))
    grades = SHELL_GAME.grade_steps(prompt, text.split())
    named = [(begin + i, 1 if grade else -1) for i, grade in enumerate(grades) if grade == grade]
    return tokens, tuple(at for at, _ in named), tuple(label for _, label in named)


def learn(policy: Trained, seen: Tries, plan: InferencePlan) -> dict[str, nn.Module]:
    """An outcome and a process reward model, both from the policy's weights and on the same replies."""
    pairs = [(p, t) for p, texts in zip(seen.prompts, seen.texts, strict=True) for t in texts]
    pad = policy.tokenizer.pad_token_id
    outcome = ValueModel.from_causal_lm(policy.model, seed=plan.outcome.seed)
    replies = [pipeline.reply_tokens(policy.tokenizer, *pair) for pair in pairs]
    whole = [labelled(tokens, bool(right)) for tokens, right in zip(replies, seen.right.flatten(), strict=True)]
    train_outcome(outcome, whole, plan.outcome, pad_token_id=pad, quiet=True)
    process = ValueModel.from_causal_lm(policy.model, seed=plan.process.seed)
    steps = [_steps(policy, *pair) for pair in pairs]
    train_process(process, [Stepped(*step) for step in steps if step[1]], plan.process, pad_token_id=pad, quiet=True)
    return {"outcome": outcome, "process": process}


def scores(policy: Trained, heads: Mapping[str, nn.Module], tries: Tries) -> dict[str, Tensor]:
    """``(P, N)`` in [0, 1]: the outcome model's probability at the last token, the process model's at its least sure step."""
    pairs = [(p, t) for p, texts in zip(tries.prompts, tries.texts, strict=True) for t in texts]
    pad, steps = policy.tokenizer.pad_token_id, [_steps(policy, *pair) for pair in pairs]
    tokens = [read for read, _, _ in steps]
    outcome = torch.stack([s[-1] for s in token_scores(heads["outcome"], tokens, pad_token_id=pad)]).sigmoid()
    process = torch.stack([
        s[list(ends)].sigmoid().amin() if ends else s.new_zeros(())
        for s, (_, ends, _) in zip(token_scores(heads["process"], tokens, pad_token_id=pad), steps, strict=True)
    ])  # fmt: skip
    return {"outcome": outcome.view(tries.right.shape), "process": process.view(tries.right.shape)}


def ranked_right(values: Tensor, right: Tensor) -> float:
    """How often a right reply has a larger value than a wrong one, over all such pairs; ties count a half."""
    good, bad = values[right == 1], values[right == 0]
    above = (good[:, None] > bad).double() + 0.5 * (good[:, None] == bad).double()
    return float(above.mean())


def accuracy(tries: Tries, values: Tensor, count: int, how: str, seed: int, subsets: int) -> float:
    """How often ``count`` of the tries give the right answer: by a ``vote`` whose weights are the values, or the ``best`` by value.

    Mean over random subsets; the order of a subset decides ties.
    """
    draws, found = generator("subsets", seed), []
    for _ in range(subsets):
        picked = torch.rand(values.shape, generator=draws).argsort(-1)[:, :count]
        chosen = values.gather(-1, picked)
        if how == "vote":
            chosen = vote_totals(tries.answers.gather(-1, picked), chosen)
        best = (chosen == chosen.amax(-1, keepdim=True)).byte().argmax(-1, keepdim=True)
        found.append(float(tries.right.gather(-1, picked).gather(-1, best).mean()))
    return sum(found) / len(found)


def pass_at(tries: Tries, k: int) -> float:
    """pass@k over the prompts, without bias."""
    return float(pass_at_k(tries.right.shape[1], tries.right.sum(-1).long(), k=k).mean())
