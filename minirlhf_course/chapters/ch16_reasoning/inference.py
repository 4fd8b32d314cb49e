"""More samples in place of more training: votes, learned verifiers and best-of-n in the shell game, against the number
of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD, answer


@dataclass(frozen=True)
class InferencePlan:
    """The numbers of samples, and the training of the verifiers."""

    prompts: int = 150
    tries: int = 32
    labelled: int = 500
    of_each: int = 4
    outcome: OutcomeConfig = OutcomeConfig(max_steps=150, batch_size=64, learning_rate=1e-3, lr_scheduler_type="linear")
    process: ProcessConfig = ProcessConfig(max_steps=150, batch_size=64, learning_rate=1e-3, lr_scheduler_type="linear")
    subsets: int = 16


@dataclass(frozen=True)
class Tries:
    """Several completions of each of some prompts; ``(P, N)`` each.

    Attributes:
        prompts: the P prompts.
        texts: P lists of N completions.
        right: 0 or 1.
        answers: the number of the cup; a completion without a cup has a number of its own.
        tokens: number of tokens.
        logps: of the whole completion, in nats.
    """

    prompts: list[str]
    texts: list[list[str]]
    right: Tensor
    answers: Tensor
    tokens: Tensor
    logps: Tensor


def sample_tries(policy: Trained, split: str, first: int, count: int, tries: int, seed: int) -> Tries:
    """Sample completions of ``count`` prompts of a split, starting with the prompt number ``first``."""
    problems = task_problems(WORLD, "test" if split == "test" else "train")[first : first + count]
    samples = candidates(
        policy.model, problems, task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), num_generations=tries, seed=seed,
    )  # fmt: skip
    cups = [answer(text) for texts in samples.completions for text in texts]
    answers = torch.tensor([len(CUPS) + i if cup is None else cup for i, cup in enumerate(cups)])
    grouped = samples.rollout.grouped
    return Tries(
        [problem.prompt[-1]["content"] for problem in problems],
        samples.completions,
        samples.rewards,
        answers.view(samples.rewards.shape),
        grouped(lengths(samples.rollout.mask)).double(),
        grouped((samples.rollout.old_logps * samples.rollout.mask).sum(-1)),
    )


def _steps(policy: Trained, prompt: str, text: str) -> tuple[Tokens, tuple[int, ...], tuple[int, ...]]:
    """Return a completion's tokens, the position of each cup that it names, and whether the cup is the right one: 1 or
    −1."""
    tokens = pipeline.completion_tokens(policy.tokenizer, prompt, text)
    prompt_length = len(encode_prompt(policy.tokenizer, conversation(prompt)))
    grades = SHELL_GAME.grade_steps(prompt, text.split())
    steps = [(prompt_length + i, 1 if grade else -1) for i, grade in enumerate(grades) if grade == grade]
    return tokens, tuple(position for position, _ in steps), tuple(label for _, label in steps)


def learn(policy: Trained, seen: Tries, plan: InferencePlan) -> dict[str, nn.Module]:
    """Train an outcome and a process reward model, both from the policy's weights and on the same completions."""
    pairs = [(p, t) for p, texts in zip(seen.prompts, seen.texts, strict=True) for t in texts]
    pad = policy.tokenizer.pad_token_id
    outcome = ValueModel.from_causal_lm(policy.model, seed=plan.outcome.seed)
    completions = [pipeline.completion_tokens(policy.tokenizer, *pair) for pair in pairs]
    examples = [labelled(tokens, bool(right)) for tokens, right in zip(completions, seen.right.flatten(), strict=True)]
    train_outcome(outcome, examples, plan.outcome, pad_token_id=pad, quiet=True)
    process = ValueModel.from_causal_lm(policy.model, seed=plan.process.seed)
    steps = [_steps(policy, *pair) for pair in pairs]
    train_process(process, [Stepped(*step) for step in steps if step[1]], plan.process, pad_token_id=pad, quiet=True)
    return {"outcome": outcome, "process": process}


def scores(policy: Trained, heads: Mapping[str, nn.Module], tries: Tries) -> dict[str, Tensor]:
    """Return ``(P, N)`` in [0, 1]: the outcome model's probability at the last token, and the process model's lowest
    probability of a step."""
    pairs = [(p, t) for p, texts in zip(tries.prompts, tries.texts, strict=True) for t in texts]
    pad, steps = policy.tokenizer.pad_token_id, [_steps(policy, *pair) for pair in pairs]
    tokens = [ids for ids, _, _ in steps]
    outcome = torch.stack([s[-1] for s in token_scores(heads["outcome"], tokens, pad_token_id=pad)]).sigmoid()
    process = torch.stack([
        s[list(ends)].sigmoid().amin() if ends else s.new_zeros(())
        for s, (_, ends, _) in zip(token_scores(heads["process"], tokens, pad_token_id=pad), steps, strict=True)
    ])  # fmt: skip
    return {"outcome": outcome.view(tries.right.shape), "process": process.view(tries.right.shape)}


def ranked_right(values: Tensor, right: Tensor) -> float:
    """Return how often a right completion has a larger value than a wrong one, over all such pairs; ties count ½."""
    positives, negatives = values[right == 1], values[right == 0]
    wins = (positives[:, None] > negatives).double() + 0.5 * (positives[:, None] == negatives).double()
    return float(wins.mean())


def accuracy(tries: Tries, values: Tensor, count: int, how: str, seed: int, subsets: int) -> float:
    """Return how often ``count`` of the completions give the right answer: by a ``vote`` weighted by the values, or the
    ``best`` by value.

    Mean over random subsets; the order of a subset decides ties.
    """
    rng, accuracies = generator("subsets", seed), []
    for _ in range(subsets):
        subset = torch.rand(values.shape, generator=rng).argsort(-1)[:, :count]
        weights = values.gather(-1, subset)
        if how == "vote":
            weights = vote_totals(tries.answers.gather(-1, subset), weights)
        best = (weights == weights.amax(-1, keepdim=True)).byte().argmax(-1, keepdim=True)
        accuracies.append(float(tries.right.gather(-1, subset).gather(-1, best).mean()))
    return sum(accuracies) / len(accuracies)


def pass_at(tries: Tries, k: int) -> float:
    """Return pass@k over the prompts, without bias."""
    return float(pass_at_k(tries.right.shape[1], tries.right.sum(-1).long(), k=k).mean())
