# %% [markdown]
# # 20 · Too much of a good thing
#
# A policy is trained against a reward model. The reward rises, step after step. **Are the completions getting better?** In practice
# you cannot see this. Here you can: the environments of this notebook have a *gold reward* that no optimiser may use and that everyone may look at.
#
# The first environment has seven words and 19,607 completions, so every number in it is a sum and not an estimate. In the second a language model
# is trained.

# %%

import logging
import statistics

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import seven_words, tasks
from minirlhf.equations import overoptimization as over
from minirlhf.feedback.proxies import (
    compare,
    fit,
    fit_everything,
    with_flipped_tail,
    with_noise,
)
from minirlhf.feedback.rewards import task_problems
from minirlhf.models.sampling import Sampling
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import candidates
from minirlhf_course import evidence
from minirlhf_course.chapters.ch20_overoptimization import (
    figures,
    habits,
    language_model,
    leash,
    remedies,
    report,
    tampering,
)
from minirlhf_course.chapters.ch20_overoptimization.assistant import COUNTED, counts
from minirlhf_course.chapters.ch20_overoptimization.curves import (
    along,
    best_of_n_curve,
    optimise,
    policy_gradient,
    tilt_curve,
)
from minirlhf_course.chapters.ch20_overoptimization.detector import detection
from minirlhf_course.chapters.ch20_overoptimization.errors import decompose
from minirlhf_course.chapters.ch20_overoptimization.fits import judge
from minirlhf_course.chapters.ch20_overoptimization.language_dpo import dpo
from minirlhf_course.chapters.ch20_overoptimization.networks import DIFFERENCES
from minirlhf_course.chapters.ch20_overoptimization.study_exact import short
from minirlhf_course.classroom.predictions import Predictions

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

everything = seven_words.replies()  # 19,607
world = seven_words.bags()  # 791 bags of words, for all that only counts words
seen = evidence.StudyResults("ch20_exact")  # 20 draws of the comparisons
predict = Predictions("20")


# %%
# NBVAL_CHECK_OUTPUT
print(
    f"{len(everything):,} completions; mean gold reward of the reference policy {everything.probs @ everything.gold:.3f}"
)
print("\ncompletion                         reference    gold")
order = everything.probs.argsort(descending=True)[:5].tolist() + everything.gold.argsort(descending=True)[:2].tolist()
for i in [*order, everything.texts.index("great great great great great")]:
    print(f"{everything.texts[i]:34} {everything.probs[i]:9.1e} {everything.gold[i]:7.2f}")

# %% [markdown]
# The gold reward pays for facts (with diminishing returns), for one polite word and for one *great*; it subtracts for *um*, repetition and length.
# A simulated annotator compares pairs of the reference policy's completions, and a reward model is fitted to 400 of the comparisons. The reward model
# sees how often each word occurs, and is linear.
#
# ## The path of an optimiser
#
# The best policy at each KL is a tilt of the reference policy. We write it ourselves and compare it with the library.

# %%
harder = predict(
    "The policy is optimised for the reward model, more and more strongly. What happens to the gold reward?",
    "it rises",
    "it falls",
    "it rises, then falls",
)


# %%
# NBVAL_CHECK_OUTPUT
def tilt(logps, rewards, strength):
    """π ∝ π_ref exp(strength · r)."""
    return torch.log_softmax(logps + strength * rewards, -1)


learned = fit(world, compare(world, 400, seed=0), "counts")
torch.testing.assert_close(tilt(world.ref_logps, learned, 2.0), over.tilt(world.ref_logps, learned, strength=2.0))
on_the_way = []
print("strength     KL    proxy   gold   dgold/dstrength   most probable bag of words")
for strength in (0, 0.5, 1, 1.5, 2, 4, 10):
    logps = tilt(world.ref_logps, learned, strength)
    p = logps.exp()
    kl = max(0.0, float(p @ (logps - world.ref_logps)))
    slope = over.tilt_slope(logps, world.gold, learned)
    likely = world.texts[int(p.argmax())]
    print(f"{strength:6} {kl:9.2f} {p @ learned:8.2f} {p @ world.gold:6.2f} {slope:12.2f}         {likely}")
    on_the_way.append(float(p @ world.gold))
best, last = max(on_the_way), on_the_way[-1]
harder.reveal("it rises" if last == best else "it falls" if best == on_the_way[0] else "it rises, then falls")

# %% [markdown]
# The column *dgold/dstrength* is the covariance of gold and proxy reward **under the current policy**. Under the reference policy it is positive:
# there the reward model is a good one. The gold reward turns where the covariance changes its sign.
#
# Next come three optimisers on twenty data sets of 400 comparisons (policy gradient on four): the tilt, best-of-n by its exact law, and gradient ascent on a
# word-by-word policy, with the gradient summed over all completions.

# %%
proxies = [fit(world, compare(world, 400, seed=s), "counts") for s in range(20)]
curves = {
    "exact tilt": [tilt_curve(world.ref_logps, p, world.gold) for p in proxies],
    "best-of-n": [best_of_n_curve(world.ref_logps, p, world.gold) for p in proxies],
    "policy gradient": [
        optimise("policy-gradient", everything, seven_words.lifted(p)) for p in progress(proxies[:4], "policy gradient")
    ],
}
for name, found in curves.items():
    print(
        f"{name:16} peak {sum(c.peak[1] for c in found) / len(found):.2f}, falls in {sum(c.fall > 0.2 for c in found)} of {len(found)}"
    )

# %%
# figure: overview
# alt: Three panels of mean reward against the root of the KL: exact tilt, best-of-n, policy gradient. In each the proxy reward rises all the way while
#   the gold reward rises to a peak at a distance of about 1.4 and then falls, on every data set; the band over data sets widens as it falls.
fig, axes = plt.subplots(1, 3, figsize=(9.4, 3), layout="constrained", sharey=True)
figures.overview(axes, curves)
plt.show()

# %%
assert all(c.fall > 0.2 for found in curves.values() for c in found)
assert seen.holds("tilt_fall", above=0) and seen.holds("bon_fall", above=0) and seen.holds("pg_fall", above=0)

# %% [markdown]
# ## Which law?
#
# Gao, Schulman and Hilton fitted $d(\alpha - \beta d)$ to best-of-n and $d(\alpha - \beta\log d)$ to RL, with $d = \sqrt{\mathrm{KL}}$. Which of the two
# fits our three optimisers? The bands resample whole data sets.

# %%
# figure: fits
# alt: Gain in gold reward against distance for three optimisers, thin grey lines per data set and a black mean. The blue parabola lies on the mean;
#   the red logarithmic form starts too steeply and falls too slowly, in all three panels.
verdicts = {name: judge(found) for name, found in curves.items()}
fig, axes = plt.subplots(1, 3, figsize=(9.4, 3), layout="constrained")
figures.fits(axes, verdicts)
plt.show()
for name, verdict in verdicts.items():
    print(
        f"{name}: {verdict.sentence}; on a seed that was not fitted "
        + ", ".join(f"{r:.2f}" for r in verdict.held_out.values())
    )

# %% [markdown]
# The parabola, for the tilt and best-of-n. Policy gradient has only four data sets here; over the study's twenty the two forms do not differ significantly in fit.
# The logarithmic form has an infinite slope at 0, whereas the exact theory demands a finite one. This is one small environment, and no verdict on large models. It *is* a warning
# against reading a mechanism into a fit.
#
# ## How much data, and which class
#
# We vary the number of comparisons for a reward model that counts words, and for one that also sees products of two counts.

# %%
cured = predict(
    "Does the gold reward still fall when the counting reward model has all possible comparisons?", "yes", "no"
)


# %%
def by_tilt(proxy):
    """The path of the exact tilt towards a proxy."""
    return tilt_curve(world.ref_logps, proxy, world.gold)


limits = {proxy_class: fit_everything(world, proxy_class) for proxy_class in ("counts", "pairs")}
by_data = {}
for proxy_class, limit in limits.items():
    by_data[proxy_class] = {
        f"{n:,} comparisons": [by_tilt(fit(world, compare(world, n, seed=s), proxy_class)) for s in range(4)]
        for n in progress((50, 200, 1600), proxy_class)
    }
    by_data[proxy_class]["all possible"] = [by_tilt(limit)]
cured.reveal("yes" if by_data["counts"]["all possible"][0].fall > 0.2 else "no")

# %%
# figure: data
# alt: Two panels of gold reward against distance. For a proxy that counts words it falls with any number of comparisons, even with all possible ones. For a
#   proxy with pairs of words it rises higher and falls less with more comparisons, and with all possible ones it does not fall.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained", sharey=True)
for ax, (proxy_class, found) in zip(axes, by_data.items(), strict=True):
    figures.gold_curves(ax, found)
    ax.set(title=f"the proxy sees {proxy_class}", ylim=(-1.3, 2.5))
plt.show()

# %%
assert by_data["pairs"]["all possible"][0].fall < 1e-6  # exact
assert by_data["counts"]["all possible"][0].fall > 0.5  # exact
assert seen.holds("pairs_1600_peak", above=1.7) and seen.holds("pairs_50_peak", below=1.6)

# %% [markdown]
# There are two causes. A class that cannot express the gold reward (*misspecification*) fails with any amount of data. A class that can, but has
# too few comparisons (*estimation error*), improves with data.
#
# ## Two controls
#
# Two errors of another kind. The first is Gaussian noise that is independent of everything. The second affects one per cent of completions, the worst ones: there the sign of the
# gold reward is flipped.

# %%
noise = predict(
    "The proxy is the gold reward plus independent noise with the same standard deviation. How much does the gold reward lose from its peak?",
    "almost nothing",
    "about half a point",
    "two points or more",
)

# %%
noisy = [tilt_curve(everything.ref_logps, with_noise(everything, std=0.8, seed=s), everything.gold) for s in range(3)]
flipped = by_tilt(with_flipped_tail(world))
correlation = over.tilt_slope(world.ref_logps, world.gold, with_flipped_tail(world)) / over.tilt_slope(
    world.ref_logps, world.gold, world.gold
)
print(
    f"under the reference policy the flipped proxy has a correlation of {float(correlation):.2f} with gold; at the end gold is {flipped.gold[-1]:.2f}"
)
fall = max(curve.fall for curve in noisy)
noise.reveal("almost nothing" if fall < 0.1 else "about half a point" if fall < 1 else "two points or more")

# %%
# figure: controls
# alt: Gold reward against distance for three proxies. With the gold reward as proxy it never falls, and with added independent noise it does not fall up to d = 2. With the sign flipped in
#   the worst one per cent it rises in the same way at first and then drops below minus four.
fig, ax = plt.subplots(figsize=(5.4, 3.1), layout="constrained")
figures.gold_curves(
    ax,
    {
        "proxy = gold": [tilt_curve(world.ref_logps, world.gold, world.gold)],
        "gold + independent noise": noisy,
        "gold, sign flipped in the worst 1 %": [flipped],
    },
)
plt.show()

# %%
assert seen.holds("noise_fall", below=0.05) and flipped.gold[-1] < -4  # exact

# %% [markdown]
# Independent Gaussian noise costs a part of the gain and brings no fall up to d = 2 (heavy-tailed noise can do more). The second error is rare and hardly lowers the correlation,
# and it takes the gold reward far below its initial value.
#
# ## Error decomposition
#
# The best gold reward at this KL, less the gold reward of a trained policy, is a sum of three parts: class, data, optimiser.

# %%
parts = {}
for proxy_class, n in progress((("counts", 400), ("pairs", 200), ("pairs", 1600)), "policy gradient"):
    parts[f"{proxy_class}, {n:,}"] = []
    for s in range(2):
        p = fit(world, compare(world, n, seed=s), proxy_class)
        trained = optimise("policy-gradient", everything, seven_words.lifted(p))
        parts[f"{proxy_class}, {n:,}"].append(decompose(world, limits[proxy_class], p, trained, distance=1.5))

# %%
# figure: errors
# alt: Stacked bars of gold reward lost at distance 1.5. For the counting proxy nearly all of it is approximation error; for the proxy with pairs and 200
#   comparisons most is estimation error; with 1,600 half as much is lost, and most of that is the optimiser's.
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
figures.errors(ax, parts)
ax.set_xlabel("class of the proxy, comparisons")
plt.show()

# %%
assert seen.holds("counts_approximation", above=0.5) and seen.holds("pairs_approximation", below=0.1)
assert seen.holds("counts_estimation", below=0.2)

# %% [markdown]
# ## A penalty or a stop?
#
# The two oldest remedies are a KL penalty and early stopping. Train with a penalty until the policy converges; or train without one and stop at the same
# distance from the reference policy. Which of the two has more gold reward there?

# %%
more_proxy = predict(
    "Which has more proxy reward at the same distance, in our six cases?", "the penalty", "the stop", "it varies"
)

# %%
BETAS = (1, 0.5, 0.25)
leashes, leads = {}, []
print("trained under a penalty, against the run without one")
for proxy_class, n in progress((("counts", 400), ("pairs", 200)), "leashes"):
    p, other = (seven_words.lifted(fit(world, compare(world, n, seed=s), proxy_class)) for s in (0, 500))
    path = policy_gradient(everything, seven_words.decisions(), p, steps=leash.STEPS)
    free, held = along(path, everything.ref_logps, p, everything.gold), leash.leashed(everything, p, betas=BETAS)
    turn = leash.stop_where_another_turns(path, everything, other)
    leashes[f"{proxy_class}, {n} comparisons"] = free, held, turn
    for beta, d, proxy_ahead, gold_ahead in zip(BETAS, held.distance[1:], *leash.lead(held, free), strict=True):
        leads.append(float(proxy_ahead))
        print(
            f"{proxy_class}, β = {beta:<4}: ends at {d:.2f}; ahead of the stopped run by {proxy_ahead:+.2f} proxy, {gold_ahead:+.2f} gold"
        )
more_proxy.reveal("the penalty" if min(leads) > 0 else "the stop" if max(leads) < 0 else "it varies")

# %%
# figure: leash
# alt: Two panels of proxy and gold reward against distance. Lines are one policy-gradient run without a penalty, dots the ends of runs under three penalties. The dots lie a
#   little above the line of the proxy, and close to the line of the gold reward. A star marks where a second reward model is highest: at the end of the path for the proxy that counts words, before the
#   peak of gold for the one with pairs.
fig, axes = plt.subplots(1, 2, figsize=(9.4, 3.3), layout="constrained")
for ax, (title, (free, held, turn)) in zip(axes, leashes.items(), strict=True):
    figures.leash(ax, free, held, turn)
    ax.set_title(title)
plt.show()

# %%
assert seen.holds("counts_beta_0.5_proxy_ahead", above=0)

# %% [markdown]
# The penalty has more proxy reward on all of the study's data sets. It also has more gold reward on most of them, except for pairs at β = ½:

# %%
ahead = lambda c, b: sum(x > 0 for x in seen.values(f"{c}_beta_{b}_gold_ahead"))
for proxy_class in ("counts", "pairs"):
    print(
        f"{proxy_class}: more gold under the penalty, of 20 data sets",
        {b: ahead(proxy_class, b) for b in ("1", "0.5", "0.25")},
    )

# %% [markdown]
# One penalty also means different distances for two proxies: β = 0.25 ends at one distance for one and far beyond it for the
# other. So compare runs at equal KL.
#
# The star is early stopping without the gold reward: a second reward model, fitted to fresh comparisons, scores the policy, and the run stops where this score is highest. The second model detects
# errors that come from the first model's data, and cannot detect errors that both models share.
#
# ## Remedies, at equal KL
#
# Every remedy gets the same comparisons and goes to $\sqrt{\mathrm{KL}} = 2$, or as far as it goes. Which helps against which of the two causes? The remedies are five
# bootstrap reward models (mean, worst case, mean − variance), half of the labels in a second round at the completions of the first policy, a rule against
# repetition, the rule alone, and constraints on the number of words of each kind.

# %%
second_round = predict(
    "On how many of four data sets does a second round of labels help the reward model that counts words?", 0, 2, 4
)

# %%
oracle = tilt_curve(world.ref_logps, world.gold, world.gold).gold_at(2.0)
reached, helps = {}, {}
print("better than one reward model, of four data sets")
for proxy_class, n in progress((("counts", 400), ("pairs", 200)), "remedies"):
    cases = [remedies.Evidence(world, compare(world, n, seed=s), proxy_class, s) for s in range(4)]
    gold = {name: [remedies.curve_of(name, case).gold_by(2.0) for case in cases] for name in remedies.REMEDIES}
    gold["constraints"] = [remedies.constrained_curve(case).gold_by(2.0) for case in cases]
    reached[proxy_class] = gold  # only the comparisons are sampled: four data sets
    alone = gold["one reward model"]
    helps[proxy_class] = {name: sum(a > b for a, b in zip(x, alone, strict=True)) for name, x in gold.items()}
    print(f"{proxy_class}: {helps[proxy_class]}")
second_round.reveal(helps["counts"]["second round of labels"])

# %%
# figure: remedies
# alt: Two panels of gold reward at distance 2, a dot for each of the study's twenty data sets and a bar for the mean, for one reward model and seven remedies. Where the proxy cannot express the gold reward, only a written rule helps much,
#   and a second round of labels hurts. Where it has too few data, the second round and the rule help most; ensembles change little.
fig, axes = plt.subplots(1, 2, figsize=(9.4, 3.4), layout="constrained", sharey=True)
for ax, (proxy_class, gold), n in zip(axes, reached.items(), (400, 200), strict=True):
    drawn = {name: seen.values(f"{proxy_class}_{short(name)}_gold") for name in gold}
    figures.remedies(ax, drawn, oracle=oracle)
    ax.set_title(f"{proxy_class}, {n} comparisons")
plt.show()

# %% [markdown]
# The failure on purpose is in the left panel: **a second round of labels makes the counting proxy worse**, on 15 of the study's 20 data sets. The new comparisons come from the completions of the
# policy. The class cannot fit both these and the reference policy's completions, and fits the first ones less well than before. Find the cause before you choose a remedy.
#
# ## Members that share too much
#
# Those members differed in their comparisons, which is the only way for a linear class. A network depends on its initial weights. The next reward models have one hidden layer and 100 comparisons, five to an
# ensemble. They differ in the order of the data and in nothing else (as fine-tuned reward models with one pretraining do), in their initial weights, or in the comparisons. The
# numbers are those of the study's twenty data sets.

# %%
mean = lambda name: statistics.fmean(seen.values(name))
print("members differ in     disagreement (ref.)   gold lost after the peak, worst case; 20 data sets")
print(f"{'(one network)':24} {'':17} {mean('one_network_fall'):10.2f}")
for key in ("order_of_the_data", "initial_weights", "comparisons"):
    print(f"{key.replace('_', ' '):24} {mean(f'{key}_apart'):17.2f} {mean(f'other_{key}_worst_case_fall'):10.2f}")

# %%
# figure: ensembles
# alt: Gold reward at distance 2 for one network and nine ensembles, a dot for each of twenty data sets and a bar for the mean. The dots of each row range over about a point; the bars of all ten rows lie
#   within a tenth of a point of each other.
kinds = [f"other {k}: {how}" for k in DIFFERENCES for how in ("mean", "worst case", "mean − variance")]
fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
figures.remedies(ax, {n: seen.values(f"{short(n)}_gold") for n in ("one network", *kinds)}, oracle=oracle)
plt.show()

# %%
assert seen.all_exceed("initial_weights_apart", "order_of_the_data_apart")

# %% [markdown]
# ## A detector
#
# A completion is a *hack* if the proxy overstates its gold reward by more than 1. Half of the traffic comes from the reference policy, half from the policy at $\sqrt{\mathrm{KL}} = 2$. Which score,
# known without the gold reward, detects the hacks?

# %%
# figure: detector
# alt: ROC curves of six scores. The distance of the words, the negative log-probability under the reference policy and the proxy itself reach areas of
#   about .95; the second model .85 and the disagreement of an ensemble about .7, as all of its members share the same mistake.
alarm = detection(remedies.Evidence(world, compare(world, 400, seed=0), "counts", 0))
fig, ax = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
figures.detector(ax, alarm)
plt.show()

# %%
assert seen.holds("auc_distance_of_the_words", above=0.9)

# %% [markdown]
# The log-ratio and the proxy give the same curve: under a tilt one is a straight line in the other. *Unusual* words are suspicious. The *disagreement* of an ensemble is
# a poor score where all members make the same error.
#
# Does the score detect hacks, or only the policy? Half of the traffic is the reference policy's, where hacks are rare. Over the study's twenty data sets:

# %%
alone = evidence.StudyResults("ch20_detector")
share = lambda name: statistics.fmean(alone.values(name))
print(
    f"hacks: {share('hacks_reference'):.1%} of the reference policy's completions, {share('hacks_policy'):.0%} of the policy's\n"
)
print("area under the ROC curve   mixed traffic   policy's completions alone")
for key in ("words", "proxy", "ensemble", "second"):
    print(f"{key:26} {share(f'{key}_mixed'):13.2f} {share(f'{key}_policy'):28.2f}")

# %% [markdown]
# Most of the area remains among the policy's own completions.
#
# ## Reward tampering
#
# An assistant has three slots for *work* (gold reward 1 for one, 1.6 for two, 2 for three) or *edit*. Each edit is a line in the score sheet and raises every grade of the round by 0.9. What does policy gradient learn?
# And what does it learn if the requested grade belongs to an independent sample, and not to the executed completion (*decoupled approval*)?

# %%
edits = predict("How many of the three slots are edits after ordinary policy gradient?", 0, 1, 2, 3)

# %%
# NBVAL_CHECK_OUTPUT
runs = {}
for name, edit, approval in (
    ("coupled", "all grades", over.coupled_approval),
    ("decoupled", "all grades", over.decoupled_approval),
    ("decoupled, edits praise edits", "grades of edits", over.decoupled_approval),
):
    runs[name] = tampering.train_on_approval(tampering.score_sheet(edit), approval, steps=150)
print(f"{'':30} after 150 steps")
for name, run in runs.items():
    print(f"{name:30} grade {run.grade[-1]:.1f}   gold {run.worth[-1]:.1f}   edits {run.edits[-1]:.1f}")
edits.reveal(float(runs["coupled"].edits[-1]))

# %%
# figure: tampering
# alt: Ordinary policy gradient raises the grade to 2.8 with two edits per completion while the gold reward, after a first rise, stays at 1. Decoupled approval brings the gold reward to 2 and edits to 0. If an
#   edit raises the grades of edits only, decoupled approval fails as well and the gold reward goes to 0.
fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
figures.tampering(axes, runs)
plt.show()

# %% [markdown]
# ## Over-refusal and sycophancy
#
# The first reward model knows the word *kill* but not what is meant. The second is a perfect model of annotators who prefer agreement.

# %%
# figure: habits
# alt: Left, the fraction of refusals: falling from a tenth to none without the word, and rising alike to 1 for harmless and harmful prompts with it, while the mean gold reward rises a little
#   and then falls. Right, agreement with users who are right rises to 1, then so does agreement with users who are wrong, and the gold reward rises a little and then falls to 0.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
figures.habit(axes[0], habits.over_refusal(), 2)
figures.habit(axes[1], habits.sycophancy(), 0)
plt.show()

# %% [markdown]
# ## A trained language model
#
# In the assistant environment we label 1,600 pairs of the model's own completions and train a reward model on top of the language model. Then come RLOO without a KL penalty, best-of-n up to 256, and DPO on the same pairs.
# Nothing is exact any more; every point is a sample mean. DPO does not use the reward model: its proxy is its own implicit reward.

# %%
start = Trained(*zoo.load("assistant-sft"))
plan = language_model.LanguagePlan()
DPO_STOPS = (5, 10, 15, 20, 30, 50, 75, 100, 150)  # three passes over the pairs
assistant = language_model.language_world(tasks.get("assistant"), start, plan, quiet=False)
print(f"the reward model ranks {assistant.accuracy:.0%} of held-out pairs as the annotator did")
logging.getLogger("minirlhf.trainers.online").setLevel("ERROR")  # a KL term of weight 0: it is measured, not charged
rl, history, policy = language_model.rloo(assistant, plan, monitors=counts(), quiet=False)
trained = {
    "RLOO": [rl],
    "best-of-n": [language_model.best_of_n(assistant)],
    "DPO": [dpo(assistant.task, start, assistant.pairs, stops=DPO_STOPS, quiet=False)],
}

# %%
# figure: language
# alt: Three panels of proxy and gold reward against distance for the trained language model. Under RLOO the gold reward rises by about half a point, peaks near a distance of 1.4 and
#   then falls far below its initial value while the proxy stays near 2; best-of-n rises to about 1.6 and loses a tenth at the end; DPO's gold reward rises by a little more than half a point and levels off, while its own implicit reward
#   claims more than twice that rise.
fig, axes = plt.subplots(1, 3, figsize=(9.4, 3), layout="constrained")
figures.overview(axes, trained)
plt.show()

# %%
# figure: phrases
# alt: Words per completion against distance while RLOO trains. Facts fall to about half of their initial number; polite words rise about sixfold, praise about sevenfold, and repeated
#   words fall at first and then rise to more than five times as many.
fig, ax = plt.subplots(figsize=(5, 3.1), layout="constrained")
figures.counted(ax, [history], COUNTED)
plt.show()

# %%
drawn = candidates(
    policy.model,
    task_problems(assistant.task, "test")[:3],
    assistant.gold,
    tokenizer=start.tokenizer,
    sampling=Sampling(max_completion_length=24),
    num_generations=1,
)
for prompt, (before, *_), (after,) in zip(
    assistant.task.prompts("test"),
    [assistant.texts[k * plan.draws :] for k in range(3)],
    drawn.completions,
    strict=False,
):
    print(f"{prompt}\n    before: {before[:90]}\n    after:  {after[:90]}")

# %% [markdown]
# Over-optimisation reads like this. One polite word is right, so the reward model prefers five. Its stock phrases replace the content.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# A proxy and a gold reward of your own are two functions of a prompt and a completion. `minirlhf tour overopt --proxy mine.py:eager --gold mine.py:useful --out over` is the same call in a terminal.


# %%
# NBVAL_CHECK_OUTPUT
def eager(prompt, completion):
    """What the thumbs-up button rewards."""
    return completion.count("great") + completion.count("thanks") + 0.5 * completion.count("fact")


def useful(prompt, completion):
    """What was wanted."""
    words = set(completion.split())
    return len(words & {"fact", "detail"}) - 0.1 * len(completion.split())


mine = report.overopt(proxy=eager, gold=useful, optimizer="tilt")
print(mine.table())

# %% [markdown]
# `mine.figures` holds the figures; `mine.write("over")` writes them to files.
#
# * Write a proxy that has a correlation of .95 with the gold reward under the reference policy and still ends below −1.
# * Give the counting proxy the feature *number of different words*. Which error shrinks, and by how much?
# * Stop the run of the language model where you would have stopped it, knowing only `reward` and `kl` of its history. How much gold reward did you lose?
#
# The graded exercises of this chapter: `minirlhf check 20`.
