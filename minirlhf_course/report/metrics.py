"""The metrics that trainers log: one entry for every number in a ``metrics.jsonl``, for the command line and
the book.

Every metric that a trainer logs has an entry here, and every entry is logged by some trainer; a test checks both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minirlhf.core.errors import unknown


@dataclass(frozen=True)
class Metric:
    """One number that a trainer logs every step.

    Attributes:
        name: the key in the file; ``exact_<name>`` stands for several keys.
        unit: the unit of the values.
        definition: what is computed, and over which samples.
        healthy: the curve of a good run.
        bad: what a bad curve means, and what to do.
        trainers: the trainers that log the metric.
    """

    name: str
    unit: str
    definition: str
    healthy: str
    bad: str
    trainers: tuple[str, ...]


#: The prefix of metrics that are measured on held-out data during the run.
HELD_OUT = "held_out_"
EVERY = ("sft", "reward", "verifiers", "offline", "online", "rejection", "distill")
ASKING = ("online", "rejection")
JUDGING = ("reward", "offline")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        # -- every trainer -------------------------------------------------------------------------------------------
        Metric(
            "step",
            "optimizer updates, or rollouts in online training",
            "The number of the row, from 0.",
            "Counts up by one.",
            "A jump means that rows were lost; a resumed run writes the rows after its checkpoint again, so there is none.",
            EVERY,
        ),
        Metric(
            "loss",
            "nats per token (SFT, distillation, outcome reward model), per pair (reward model, preferences), per step (process reward model); the "
            "scale of the advantages (online)",
            "What the optimizer minimises, over the whole batch, before the step.",
            "SFT: falls, fast at first, and levels off. Reward model and DPO: starts at ln 2 = 0.693, which is a coin toss. Online: "
            "near 0 and without a trend, because it is no measure of success; watch the reward.",
            "Rising or jumping: the learning rate is too high, or a batch is broken. Far below the held-out loss: it is "
            "memorising. A reward model or DPO that stays at 0.693 sees no difference between the replies.",
            EVERY,
        ),
        Metric(
            "grad_norm",
            "the loss's unit per unit of weight",
            "Euclidean norm of the gradient of all trained weights, before it is clipped to max_grad_norm. With a critic: of the "
            "policy's weights; there is none while only the critic learns (critic_warmup).",
            "Settles within a factor of ten of where it was after the warm-up.",
            "Spikes: single batches throw the run; lower the learning rate, look at those batches. Always above "
            "max_grad_norm: every step is clipped, and the learning rate is what sets its size. Exactly 0: nothing to learn "
            "from, in online training because every group is dead (see frac_reward_zero_std).",
            EVERY,
        ),
        Metric(
            "learning_rate",
            "weight per step of AdamW",
            "The learning rate of this step, after warm-up and schedule.",
            "Rises through the warm-up, then follows lr_scheduler_type.",
            "Still high when the loss has levelled off: a schedule that falls (linear, cosine) gains what is left.",
            EVERY,
        ),
        # -- supervised fine-tuning ----------------------------------------------------------------------------------
        Metric(
            "tokens",
            "tokens",
            "Tokens of the batch that the loss mask marks: what the assistant says; in rejection sampling, the replies that were kept; in "
            "distillation, the replies on which student and teacher are compared.",
            "Varies with the lengths of the replies, without a trend.",
            "Much smaller than the batch: most of it is prompt, and the step rests on few tokens.",
            ("sft", "rejection", "distill"),
        ),
        # -- distillation --------------------------------------------------------------------------------------------
        Metric(
            "own_answers",
            "0 or 1",
            "Whether the student wrote the replies of this step; otherwise the teacher did, or whoever wrote the data.",
            "Its mean over the run is the recipe's share own_answers.",
            "Always 0 where own replies were asked for: the recipe's share is 0. The loss is another one at 1 than at 0, so "
            "look at each by itself.",
            ("distill",),
        ),
        # -- reward model and preferences ----------------------------------------------------------------------------
        Metric(
            "accuracy",
            "share of pairs, of replies or of steps, 0 to 1",
            "Pairs of the batch in which the chosen reply has a higher reward than the rejected one (of a list: the best the "
            "highest). With a preference loss the reward is the implicit one, see chosen_reward. Outcome reward model: replies whose "
            "last logit is on the right side of 0; process reward model: steps.",
            "Rises from 0.5 (from 0 with a reference, as at the start all implicit rewards are equal); human preferences seldom "
            "allow more than 0.7 to 0.8 on held-out pairs.",
            "Near 1 in training and not on held-out pairs: it is memorising. Below 0.5 for long, on pairs that are labelled rightly "
            "(held_out_accuracy): chosen and rejected are swapped; on the training's own, a sign or the loss is wrong.",
            ("reward", "verifiers", "offline"),
        ),
        Metric(
            "margin",
            "reward, in nats of log-odds",
            "Mean over the batch of the chosen minus the rejected reward.",
            "Rises slowly with the accuracy; 1 means odds of e : 1.",
            "Grows without end while the accuracy stands still: it is only getting surer. Weight decay, fewer steps or a larger "
            "beta help.",
            JUDGING,
        ),
        Metric(
            "nll",
            "nats per token",
            "Mean negative log-likelihood of the chosen replies under the language model that shares the reward model's backbone; "
            "with nll_coefficient.",
            "Level or falling.",
            "Rises: the reward's loss changes the backbone faster than the likelihood holds it; raise nll_coefficient.",
            ("reward",),
        ),
        Metric(
            "chosen_logp",
            "nats per answer",
            "Mean log-probability of the chosen (or desirable) answers under the policy.",
            "Level or rising a little.",
            "Falls together with rejected_logp: likelihood displacement; probability goes to answers that are in neither set. "
            "Add an SFT term, take a smaller learning rate, or pairs that differ more.",
            ("offline",),
        ),
        Metric(
            "rejected_logp",
            "nats per answer",
            "Mean log-probability of the rejected (or undesirable) answers under the policy.",
            "Falls slowly.",
            "Falls by hundreds of nats: the loss is satisfied by forbidding; see chosen_logp.",
            ("offline",),
        ),
        Metric(
            "chosen_reward",
            "reward, in nats of log-odds",
            "Mean implicit reward of the chosen answers: beta times log π − log π_ref (without a reference log π; per token in "
            "losses that divide by the length).",
            "Rises from 0 (with a reference).",
            "Falls below 0 while the margin grows: the chosen answers become less likely too; see chosen_logp.",
            ("offline",),
        ),
        Metric(
            "rejected_reward",
            "reward, in nats of log-odds",
            "The same of the rejected answers.",
            "Falls from 0 (with a reference).",
            "Rises with chosen_reward: the loss does not tell them apart; the pairs are too alike, or beta is too small.",
            ("offline",),
        ),
        # -- online reinforcement learning ---------------------------------------------------------------------------
        Metric(
            "reward",
            "the grader's",
            "Mean reward of the sampled completions that could be graded, without the KL penalty.",
            "Rises, and the gold reward or a human's judgement with it.",
            "Flat: no signal (see frac_reward_zero_std, frac_invalid) or too small a learning rate. Rises while the gold "
            "reward falls: the policy exploits the grader.",
            ASKING,
        ),
        Metric(
            "reward_std",
            "the grader's",
            "Standard deviation of these rewards over the whole batch.",
            "Well above 0 for as long as there is something to learn.",
            "Towards 0: the answers have become alike, good or bad; nothing more is learned.",
            ASKING,
        ),
        Metric(
            "completion_length",
            "tokens",
            "Mean length of the completions, end-of-sequence included.",
            "Moves as the task asks for.",
            "Creeps up to max_completion_length: length pays (a biased reward, or a loss that averages per sequence). "
            "Collapses: short answers are safest for a penalty on KL or length.",
            ASKING,
        ),
        Metric(
            "frac_terminated",
            "share of completions, 0 to 1",
            "Completions that end by themselves and are not cut off at max_completion_length.",
            "Near 1.",
            "Falls: the policy no longer stops; cut-off answers are graded on what they lack. Allow more tokens, or "
            "penalise or mask what is cut off. 0 from the start: padding and end-of-sequence are one token.",
            ASKING,
        ),
        Metric(
            "frac_reward_zero_std",
            "share of groups, 0 to 1",
            "Prompts whose completions all earn the same: dead groups, with advantages of 0.",
            "Below a half while there is something to learn, and up to 1 as prompts are solved; for a success rate p and groups of G it "
            "is p^G + (1 − p)^G.",
            "Near 1: the prompts are too easy or too hard, and the batch is smaller than it looks. Mix difficulties, take "
            "larger groups, or sample prompts until enough groups are mixed.",
            ASKING,
        ),
        Metric(
            "frac_invalid",
            "share of completions, 0 to 1",
            "Completions for which the grader returned no number; they take no part.",
            "0.",
            "Above a few per cent: the grader fails, and what it fails on is no random sample.",
            ASKING,
        ),
        Metric(
            "neg_logp",
            "nats per token",
            "Mean of −log π of the sampled tokens, an estimate of the policy's entropy.",
            "Falls slowly.",
            "Drops to 0 early: the policy has become certain before it has become right; raise epsilon_high, the KL "
            "coefficient or the temperature. Rises while the reward does not: the updates destroy what the model knew.",
            ASKING,
        ),
        Metric(
            "kl",
            "nats per completion",
            "The estimator k3 of KL(π‖π_ref), summed over the tokens and averaged over the completions.",
            "Grows from 0 and levels off; a few nats for a small model.",
            "Grows without end: beta is too small. Stays at 0: beta or the learning rate leaves no room to move, "
            "or, if neg_logp changes, the reference moves along. Leaps: look "
            "at grad_norm and policy_log_ratio_max of that step.",
            ("online",),
        ),
        Metric(
            "sampled_tokens",
            "tokens",
            "Tokens sampled for the step, also for groups and greedy completions that nothing is learned from.",
            "Follows the completion length.",
            "Far above batch_size · num_generations · completion_length: most of the sampling goes into groups that are thrown away "
            "(see frac_kept). Compare recipes at equal sampled tokens, not at equal steps.",
            ASKING,
        ),
        Metric(
            "frac_kept",
            "share of groups, 0 to 1",
            "Groups that are learned from, of all that were sampled for the step; logged by recipes that refill.",
            "Above a half.",
            "Falls: the prompts have become too easy (or are too hard), and sampling is spent on groups without a signal. 0: "
            "not one group was mixed, and nothing was learned.",
            ("online",),
        ),
        Metric(
            "frac_unknown",
            "share of tokens, 0 to 1",
            "Unknown tokens (<unk>) among the tokens of the prompts and completions; logged if a prompt has one.",
            "Not logged, or near 0.",
            "Above a tenth: the tokenizer does not know the words of the prompts, so the policy cannot tell them apart. Use a "
            "model whose vocabulary fits the data.",
            ("online",),
        ),
        Metric(
            "reward_kept",
            "the grader's",
            "Mean reward of the replies that the round imitates; logged where a round begins, as all that it says of its samples.",
            "Above reward: by what the selection gains. The next round's reward comes near it.",
            "No higher than reward: the replies to a prompt are alike, or the grader cannot tell them apart. The next round's reward "
            "stays far below it: too few steps or too small a learning rate to learn what was kept.",
            ("rejection",),
        ),
        Metric(
            "prompts_kept",
            "prompts",
            "How many different prompts the kept replies answer.",
            "With selection per_prompt all of them; with overall a good part of them.",
            "A few: the best of all replies answer the easiest prompts, and the hard ones are forgotten.",
            ("rejection",),
        ),
        Metric(
            "skipped_updates",
            "optimizer steps",
            "Updates of the step that were left out because every completion was filtered out; logged by recipes that filter.",
            "0.",
            "Above 0: no completion ends by itself; allow more tokens.",
            ("online",),
        ),
        Metric(
            "policy_log_ratio_max",
            "nats",
            "Largest |log π − log π_old| of a token of the batch, before each update of a rollout, averaged over its updates.",
            "With one update per rollout it is rounding error, below 1e-3; with several below about 1.",
            "Several nats, or several times as large as usual, in the first rollouts, or with kl not 0 at step 0: training and sampling disagree on the "
            "log-probabilities (temperature, mask, precision); everything built on the ratio is wrong. Large later: too many or too long steps on one rollout.",
            ("online",),
        ),
        Metric(
            "approx_kl",
            "nats per token",
            "Mean over the tokens of (ρ − 1) − log ρ with ρ = π/π_old: how far the update has moved from the policy of ``old_logps``: the one that sampled, or with ``decoupled`` the one at the start of the step.",
            "0 in the first update of a rollout, then up to a few hundredths.",
            "Above 0.1: the update runs away from the data it was computed on; fewer iterations or minibatches, a lower "
            "learning rate. Not 0 with one update per rollout: training and sampling disagree on the log-probabilities.",
            ("online",),
        ),
        Metric(
            "clip_fraction",
            "share of tokens, 0 to 1",
            "Tokens with an advantage that get no gradient from the objective, because it clips their ratio or an off-policy correction masks them.",
            "0 with one update per rollout, else below 0.2.",
            "High: most of the data teaches nothing any more in the later updates; fewer of them. 0 throughout, with several "
            "updates: the steps are too small for the clip to matter.",
            ("online",),
        ),
        Metric(
            "critic_loss",
            "squared units of the reward",
            "What the optimizer minimises while only the critic learns (critic_warmup): vf_coef times the value loss. From then on it "
            "is a part of loss.",
            "Falls while the critic learns to predict.",
            "Flat from the start: the critic's learning rate is too small (critic_learning_rate_ratio), or there is nothing to "
            "predict. Grows: the rewards are too large for it; scale them.",
            ("online",),
        ),
        Metric(
            "critic_grad_norm",
            "the loss's unit per unit of weight",
            "Euclidean norm of the gradient of the critic's own weights (of a shared critic: its head), before it is clipped to "
            "max_grad_norm by itself. Recipes with a critic only.",
            "Falls while the critic learns to predict, and follows the policy afterwards.",
            "Always above max_grad_norm: the critic learns at the pace of the clip; scale the rewards, or lower vf_coef.",
            ("online",),
        ),
        Metric(
            "explained_variance",
            "share, at most 1",
            "1 − Var(return − value) / Var(return) over the sampled tokens: what the critic knew before its update.",
            "Rises from 0 or below, as far as chance allows, in the first tens of steps.",
            "Stays at 0 or below from the start: the critic knows no more than a constant (at 0) or less (below), and the advantages are noise; raise its "
            "learning rate or vf_coef, or let it learn alone first (critic_warmup). A fall to 0 late in a run that has learned is no fault: "
            "what is left to explain is chance. NaN: all returns are equal.",
            ("online",),
        ),
        Metric(
            "value",
            "the grader's, after the KL penalty",
            "Mean of the critic's values of the sampled tokens, before its update.",
            "Follows the reward, less the KL penalty.",
            "Far from it, or leaping: the critic diverges; lower vf_coef or the learning rate.",
            ("online",),
        ),
        Metric(
            "seconds",
            "seconds",
            "Time of the step, all included.",
            "Even, after the first steps.",
            "Grows: completions get longer, or memory fills up.",
            ("online",),
        ),
        Metric(
            "seconds_sampling",
            "seconds",
            "Of these, the time for sampling completions.",
            "Half to nine tenths of the step.",
            "Nearly all of it: a few long completions hold up the batch; lower max_completion_length or take more prompts at once.",
            ("online",),
        ),
        Metric(
            "frac_called",
            "share of conversations, 0 to 1",
            "Conversations in which the policy called a tool, also if the call could not be made; logged where there are tools.",
            "Settles where a call earns more than it costs, and the reward with it.",
            "Falls to 0: calls cost more than they bring while their answers are not yet read; show more demonstrations, and raise the price "
            "later. Near 1 while the reward is flat: calls are made and their answers are not used.",
            ("online",),
        ),
        # -- tasks that can be enumerated  ---------------------------------------------------------------------------
        Metric(
            "exact_<name>",
            "that of the reward it is named after",
            "Expected reward (exact_reward), or another value that is watched, of the policy after the update: summed over "
            "every response, not sampled.",
            "exact_reward rises to what the KL penalty allows.",
            "Away from the sampled mean: sampling and training see two policies.",
            ("toy",),
        ),
        Metric(
            "exact_kl",
            "nats per completion",
            "KL(π‖π_ref) of the policy after the update, summed over every response.",
            "Within the noise of the sampled kl.",
            "Far from the sampled kl: the estimator, or the mask under it, is wrong.",
            ("toy",),
        ),
    )
}


def get(name: str) -> Metric:
    """Return the entry of a metric; for an unknown name raise a ``UserError`` with the nearest name.

    ``exact_gold`` has the entry ``exact_<name>``; ``held_out_loss`` has the entry ``loss``, measured on held-out data.
    """
    name = name.removeprefix(HELD_OUT)
    if name not in METRICS and name.startswith("exact_"):
        return METRICS["exact_<name>"]
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]


def unexplained(names: Iterable[str]) -> list[str]:
    """Return the names that have no entry: custom metrics of the user."""
    base_names = {name: name.removeprefix(HELD_OUT) for name in names}
    return sorted(name for name, base in base_names.items() if base not in METRICS and not base.startswith("exact_"))
