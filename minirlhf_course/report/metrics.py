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
            "The number of the step, from 1.",
            "Counts up by one.",
            "A jump means that rows were lost. A resumed run has no jump, because it writes the rows after its checkpoint again.",
            EVERY,
        ),
        Metric(
            "loss",
            "nats per token (SFT, distillation, outcome reward model), per pair (reward model, preferences) or per step (process reward model); "
            "units of the advantages (online)",
            "The value that the optimizer minimises, over the whole batch, before the step.",
            "SFT: falls, fast at first, and levels off. Reward model and DPO: starts at ln 2 = 0.693, which is chance. Online: "
            "near 0 and without a trend, because it does not measure success; monitor the reward.",
            "Rises or jumps: the learning rate is too high, or a batch is broken. Far below the held-out loss: the model "
            "memorises. Stays at 0.693 (reward model, DPO): the model does not distinguish the completions.",
            EVERY,
        ),
        Metric(
            "grad_norm",
            "the loss's unit per unit of weight",
            "Euclidean norm of the gradient of all trained weights, before it is clipped to max_grad_norm. With a critic: of the "
            "policy's weights; there is none while only the critic learns (critic_warmup).",
            "Stays within a factor of ten of its value after the warm-up.",
            "Spikes: single batches disturb the run; lower the learning rate, look at those batches. Always above "
            "max_grad_norm: every step is clipped, and only the learning rate sets its size. Exactly 0: there is no gradient, "
            "in online training because every group has zero variance (see frac_reward_zero_std).",
            EVERY,
        ),
        Metric(
            "learning_rate",
            "weight per step of AdamW",
            "The learning rate of this step, after warm-up and schedule.",
            "Rises through the warm-up, then follows lr_scheduler_type.",
            "Still high when the loss has levelled off: with a decreasing schedule (linear, cosine) the loss falls further.",
            EVERY,
        ),
        # -- supervised fine-tuning ----------------------------------------------------------------------------------
        Metric(
            "tokens",
            "tokens",
            "Tokens of the batch that the loss mask marks: the assistant's turns; in rejection sampling, the selected completions; in "
            "distillation, the completions on which student and teacher are compared.",
            "Varies with the lengths of the completions, without a trend.",
            "Much smaller than the batch: most of it is prompt, and the step rests on few tokens.",
            ("sft", "rejection", "distill"),
        ),
        # -- distillation --------------------------------------------------------------------------------------------
        Metric(
            "own_answers",
            "0 or 1",
            "Whether the student sampled the completions of this step (on-policy). If not, they come from the teacher or from the data.",
            "Its mean over the run is the recipe's fraction own_answers.",
            "Always 0 although on-policy samples are wanted: the recipe's fraction is 0. The loss has another distribution at 1 than at 0, so "
            "look at them separately.",
            ("distill",),
        ),
        # -- reward model and preferences ----------------------------------------------------------------------------
        Metric(
            "accuracy",
            "fraction of pairs, of completions or of steps, 0 to 1",
            "Pairs of the batch in which the chosen completion has a higher reward than the rejected one (in a list: the best has the "
            "highest). With a preference loss the reward is the implicit one, see chosen_reward. Outcome reward model: completions whose "
            "last logit has the right sign; process reward model: steps.",
            "Rises from 0.5 (from 0 with a reference, because at the start all implicit rewards are equal). On held-out human preferences "
            "more than 0.7 to 0.8 is rare.",
            "Near 1 in training and not on held-out pairs: the model memorises. Below 0.5 for long on pairs with right labels "
            "(held_out_accuracy): chosen and rejected are swapped. Below 0.5 on the training pairs: a sign or the loss is wrong.",
            ("reward", "verifiers", "offline"),
        ),
        Metric(
            "margin",
            "reward, in nats of log-odds",
            "Mean over the batch of the chosen minus the rejected reward.",
            "Rises slowly with the accuracy; 1 means odds of e : 1.",
            "Grows without end while the accuracy is constant: the model only becomes more certain. Weight decay, fewer steps or a larger "
            "beta help.",
            JUDGING,
        ),
        Metric(
            "nll",
            "nats per token",
            "Mean negative log-likelihood of the chosen completions under the language model that shares the reward model's backbone; "
            "logged with nll_coefficient.",
            "Constant or falling.",
            "Rises: the reward's loss outweighs the likelihood term; raise nll_coefficient.",
            ("reward",),
        ),
        Metric(
            "chosen_logp",
            "nats per completion",
            "Mean log-probability of the chosen (or desirable) completions under the policy.",
            "Constant or rising a little.",
            "Falls together with rejected_logp: likelihood displacement; probability goes to completions that are in neither set. "
            "Add an SFT term, take a smaller learning rate, or pairs that differ more.",
            ("offline",),
        ),
        Metric(
            "rejected_logp",
            "nats per completion",
            "Mean log-probability of the rejected (or undesirable) completions under the policy.",
            "Falls slowly.",
            "Falls by hundreds of nats: the loss falls only because rejected completions become improbable; see chosen_logp.",
            ("offline",),
        ),
        Metric(
            "chosen_reward",
            "reward, in nats of log-odds",
            "Mean implicit reward of the chosen completions: beta times log π − log π_ref (log π without a reference; per token in "
            "losses that divide by the length).",
            "Rises from 0 (with a reference).",
            "Falls below 0 while the margin grows: the chosen completions become less probable too; see chosen_logp.",
            ("offline",),
        ),
        Metric(
            "rejected_reward",
            "reward, in nats of log-odds",
            "Mean implicit reward of the rejected completions, as in chosen_reward.",
            "Falls from 0 (with a reference).",
            "Rises with chosen_reward: the model does not separate them; the pairs are too similar, or beta is too small.",
            ("offline",),
        ),
        # -- online reinforcement learning ---------------------------------------------------------------------------
        Metric(
            "reward",
            "units of the reward",
            "Mean reward of the sampled completions that could be graded, without the KL penalty.",
            "Rises, and the gold reward or a human's judgement with it.",
            "Flat: no signal (see frac_reward_zero_std, frac_invalid) or too small a learning rate. Rises while the gold "
            "reward falls: the policy exploits the grader.",
            ASKING,
        ),
        Metric(
            "reward_std",
            "units of the reward",
            "Standard deviation of the rewards over the whole batch.",
            "Well above 0 while there is something to learn.",
            "Falls to 0: all completions get the same reward, high or low, and there is no gradient.",
            ASKING,
        ),
        Metric(
            "completion_length",
            "tokens",
            "Mean length of the completions, end-of-sequence included.",
            "Changes as the task requires.",
            "Rises slowly to max_completion_length: length is rewarded (a biased reward, or a loss that averages per sequence). "
            "Collapses: short completions have the smallest penalty on KL or length.",
            ASKING,
        ),
        Metric(
            "frac_terminated",
            "fraction of completions, 0 to 1",
            "Completions that end with the end-of-sequence token and are not truncated at max_completion_length.",
            "Near 1.",
            "Falls: the policy no longer stops, and truncated completions are graded without their answers. Allow more tokens, or "
            "penalise or mask truncated completions. 0 from the start: padding and end-of-sequence are one token.",
            ASKING,
        ),
        Metric(
            "frac_reward_zero_std",
            "fraction of groups, 0 to 1",
            "Prompts whose completions all have the same reward: zero-variance groups, with advantages of 0.",
            "Below 0.5 while there is something to learn, and up to 1 as prompts are solved. For a success rate p and groups of size G its "
            "expectation is p^G + (1 − p)^G.",
            "Near 1: the prompts are too easy or too hard, and the effective batch is small. Mix difficulties, take "
            "larger groups, or sample prompts until enough groups have nonzero variance.",
            ASKING,
        ),
        Metric(
            "frac_most_common",
            "fraction of completions, 0 to 1",
            "Completions of the step that equal the most frequent one; logged if the prompts of the step differ.",
            "Low where prompts have different answers, also when each is answered right.",
            "Rises to 1: the policy writes one text, which may be empty, whatever the prompt. Read a few samples; the "
            "reward pays for this text.",
            ASKING,
        ),
        Metric(
            "frac_invalid",
            "fraction of completions, 0 to 1",
            "Completions for which the grader returned no number; they are left out.",
            "0.",
            "Above a few per cent: the grader fails, and the completions on which it fails are no random sample.",
            ASKING,
        ),
        Metric(
            "neg_logp",
            "nats per token",
            "Mean of −log π of the sampled tokens, an estimate of the policy's entropy.",
            "Falls slowly.",
            "Falls to 0 early: the policy is certain before it is right; raise epsilon_high, the KL "
            "coefficient or the temperature. Rises while the reward does not: the updates make the policy random.",
            ASKING,
        ),
        Metric(
            "kl",
            "nats per completion",
            "The estimator k3 of KL(π‖π_ref), summed over the tokens and averaged over the completions.",
            "Grows from 0 and levels off; a few nats for a small model.",
            "Grows without end: beta is too small. Stays at 0: beta is too large or the learning rate too small, "
            "or, if neg_logp changes, the reference moves with the policy. Jumps: look "
            "at grad_norm and policy_log_ratio_max of that step.",
            ("online",),
        ),
        Metric(
            "sampled_tokens",
            "tokens",
            "Tokens sampled for the step, including discarded groups and greedy completions that only serve as a baseline.",
            "Follows the completion length.",
            "Far above batch_size · num_generations · completion_length: most of the samples are in discarded groups "
            "(see frac_kept). Compare recipes at equal sampled tokens, not at equal steps.",
            ASKING,
        ),
        Metric(
            "frac_kept",
            "fraction of groups, 0 to 1",
            "Groups in the update, of all groups sampled for the step; logged by recipes with dynamic sampling.",
            "Above 0.5.",
            "Falls: the prompts have become too easy (or are too hard), and most samples are in groups without a gradient. 0: "
            "every group had zero variance, and the step changed nothing.",
            ("online",),
        ),
        Metric(
            "frac_unknown",
            "fraction of tokens, 0 to 1",
            "Unknown tokens (<unk>) among the tokens of the prompts and completions; logged if a prompt has one.",
            "Not logged, or near 0.",
            "Above 0.1: the tokenizer does not know the words of the prompts, so the policy cannot distinguish them. Use a "
            "model whose vocabulary fits the data.",
            ("online",),
        ),
        Metric(
            "reward_kept",
            "units of the reward",
            "Mean reward of the completions that the round imitates; logged in the first row of a round, like all metrics of its samples.",
            "Above reward, by the gain of the selection. The next round's reward comes near it.",
            "No higher than reward: the completions of a prompt are similar, or the grader cannot distinguish them. The next round's reward "
            "stays far below it: too few steps or too small a learning rate to learn the selected completions.",
            ("rejection",),
        ),
        Metric(
            "prompts_kept",
            "prompts",
            "Number of different prompts among the selected completions.",
            "With selection per_prompt all prompts; with overall a large part of them.",
            "A few: the best of all completions belong to the easiest prompts, and the hard prompts are forgotten.",
            ("rejection",),
        ),
        Metric(
            "skipped_updates",
            "optimizer steps",
            "Updates of the step that were skipped because every completion was filtered out; logged by recipes that filter.",
            "0.",
            "Above 0: all completions are truncated; allow more tokens.",
            ("online",),
        ),
        Metric(
            "policy_log_ratio_max",
            "nats",
            "Largest |log π − log π_old| of a token of the batch, before each update of a rollout, averaged over its updates.",
            "With one update per rollout it is rounding error, below 1e-3; with several below about 1.",
            "Several nats, or several times its usual value, in the first rollouts, or with kl not 0 at step 1: training and sampling disagree on the "
            "log-probabilities (temperature, mask, precision), so every ratio is wrong. Large later: too many or too large steps on one rollout.",
            ("online",),
        ),
        Metric(
            "approx_kl",
            "nats per token",
            "Mean over the tokens of (ρ − 1) − log ρ with ρ = π/π_old: the distance from the policy of ``old_logps``, which is the behaviour policy, or with ``decoupled`` the policy at the start of the step.",
            "0 in the first update of a rollout, then up to a few hundredths.",
            "Above 0.1: the updates move the policy away from its samples; use fewer iterations or minibatches, or a lower "
            "learning rate. Not 0 with one update per rollout: training and sampling disagree on the log-probabilities.",
            ("online",),
        ),
        Metric(
            "clip_fraction",
            "fraction of tokens, 0 to 1",
            "Tokens with an advantage that get no gradient from the objective, because it clips their ratio or an off-policy correction masks them.",
            "0 with one update per rollout, else below 0.2.",
            "High: in the later updates most tokens have no gradient; use fewer updates. Always 0 with several "
            "updates: the steps are too small for the clip to have an effect.",
            ("online",),
        ),
        Metric(
            "critic_loss",
            "squared units of the reward",
            "The value that the optimizer minimises while only the critic learns (critic_warmup): vf_coef times the value loss. After that it "
            "is a part of loss.",
            "Falls while the critic learns to predict.",
            "Flat from the start: the critic's learning rate is too small (critic_learning_rate_ratio), or there is nothing to "
            "predict. Grows: the rewards are too large for the critic; scale them.",
            ("online",),
        ),
        Metric(
            "critic_grad_norm",
            "the loss's unit per unit of weight",
            "Euclidean norm of the gradient of the critic's weights (of a shared critic: its head), before it is clipped to "
            "max_grad_norm, separately from the policy's. Only for recipes with a critic.",
            "Falls while the critic learns to predict, and follows the policy afterwards.",
            "Always above max_grad_norm: every step of the critic is clipped; scale the rewards, or lower vf_coef.",
            ("online",),
        ),
        Metric(
            "explained_variance",
            "fraction, at most 1",
            "1 − Var(return − value) / Var(return) over the sampled tokens, with the critic before its update.",
            "Rises from 0 or below in the first tens of steps, to a limit that the randomness of the returns sets.",
            "Stays at 0 or below from the start: the critic predicts no better than a constant (at 0) or worse (below), and does not reduce the variance of the advantages; raise its "
            "learning rate or vf_coef, or train it alone first (critic_warmup). A fall to 0 late in a run that has learned is no fault: "
            "the remaining variance is random. NaN: all returns are equal.",
            ("online",),
        ),
        Metric(
            "value",
            "units of the reward, after the KL penalty",
            "Mean of the critic's values of the sampled tokens, before its update.",
            "Follows the reward minus the KL penalty.",
            "Far from it, or with jumps: the critic diverges; lower vf_coef or the learning rate.",
            ("online",),
        ),
        Metric(
            "seconds",
            "seconds",
            "Total time of the step.",
            "Constant, after the first steps.",
            "Grows: completions get longer, or memory fills up.",
            ("online",),
        ),
        Metric(
            "seconds_sampling",
            "seconds",
            "Time for sampling completions, a part of seconds.",
            "50 to 90 % of the step.",
            "Nearly the whole step: the batch waits for a few long completions; lower max_completion_length or take more prompts at once.",
            ("online",),
        ),
        Metric(
            "frac_called",
            "fraction of conversations, 0 to 1",
            "Conversations in which the policy called a tool, including failed calls; logged if there are tools.",
            "Converges to the conversations in which a call raises the reward by more than its cost.",
            "Falls to 0: the policy does not use the outputs yet, so a call only costs; add demonstrations, and raise the price "
            "later. Near 1 while the reward is flat: the policy calls tools and does not use their outputs.",
            ("online",),
        ),
        # -- tasks that can be enumerated  ---------------------------------------------------------------------------
        Metric(
            "exact_<name>",
            "unit of the reward in its name",
            "Expected reward (exact_reward), or another logged value, of the policy after the update: summed over "
            "every completion, not sampled.",
            "exact_reward rises to the optimum under the KL penalty.",
            "Differs from the sampled mean: sampling and training use two policies.",
            ("toy",),
        ),
        Metric(
            "exact_kl",
            "nats per completion",
            "KL(π‖π_ref) of the policy after the update, summed over every completion.",
            "Equal to the sampled kl up to sampling error.",
            "Far from the sampled kl: the estimator or its mask is wrong.",
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
