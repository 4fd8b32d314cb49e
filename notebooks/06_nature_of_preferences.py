# %% [markdown]
# # 06 · The nature of preferences
#
# A reward model gives every completion one number. Annotators gave no numbers: many people said, many times, which of two completions they prefer.
# **When can one number per completion represent these comparisons, and what is lost?**
#
# Nearly everything below is exact: the examples are small enough to enumerate all cases.

# %%
import itertools
import math

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import reward_losses, social_choice
from minirlhf_course import evidence
from minirlhf_course.chapters.ch06_nature_of_preferences import cycles, groups, voting
from minirlhf_course.chapters.ch06_nature_of_preferences import equations as choice
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
predict = Predictions("06")
results = evidence.StudyResults("ch06")  # ten seeds of everything here that is sampled


def shown(x, digits=2):
    """Return the numbers of a tensor as text, zero without a sign."""
    return "  ".join(f"{v + 0.0:.{digits}f}" for v in (x * 10**digits).round().div(10**digits).flatten().tolist())


# %% [markdown]
# ## The money pump
#
# A person prefers a to b, b to c, and c to a. The person holds a, and always pays one cent for something they prefer. A dealer owns one of each.

# %%
poorer = predict("How much has the person paid after 30 offers?", "nothing", "1 cent", "3 cents", "30 cents")

# %%
# NBVAL_CHECK_OUTPUT
circle = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]]).bool()  # a over b, b over c, c over a
held, paid = cycles.money_pump(circle, fee=1.0, offers=30)
print("holds ", " ".join("abc"[k] for k in held[:10]), "…")
print("paid  ", " ".join(f"{p:.0f}" for p in paid[:10]), "…")
print(f"after 30 offers: holds {'abc'[held[-1]]} again, and is {paid[-1]:.0f} cents poorer")
line = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]]).bool()  # a over b over c: the same offers
held_line, paid_line = cycles.money_pump(line, fee=1.0, offers=30, start=2)
print(f"without the circle, from c: holds {'abc'[held_line[-1]]}, {paid_line[-1]:.0f} cent paid in all")
poorer.reveal(f"{paid[-1]:.0f} cents")

# %% [markdown]
# Each trade was an improvement for this person. The axiom of *transitivity* excludes such preferences. A person who satisfies it, and three more axioms, acts as if
# every outcome had one number. Reward models assume this number.
#
# ## Choice models on one example
#
# Three completions have the rewards 2, 1 and 0 nats. Choose the best by softmax, then the next from the rest. This is Plackett–Luce, here in one line.


# %%
def luce(rewards):
    """Return the probability of the order of the rewards: choose by softmax, remove, choose again."""
    return math.prod(float(rewards[k:].softmax(-1)[0]) for k in range(len(rewards)))


# %%
# NBVAL_CHECK_OUTPUT
r = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
orders = list(itertools.permutations(range(3)))
by_luce = torch.tensor([luce(r[list(o)]) for o in orders], dtype=torch.float64)
torch.testing.assert_close(by_luce, reward_losses.plackett_luce_logp(r[torch.tensor(orders)]).exp())

# Thurstone's noise and Mallows' dispersion are set so that the first completion beats the second equally often.
duel = float(reward_losses.bradley_terry(r[0], r[1]))
std = float(1 / (math.sqrt(2) * torch.special.ndtri(torch.tensor(duel, dtype=torch.float64))))


def mallows(dispersion):
    """``(6,)``: probability of each order around the consensus 0, 1, 2."""
    return reward_losses.mallows_logp(torch.tensor(orders), dispersion=dispersion).exp()


def first_wins(probs, a, b):
    """Return the probability that a is ranked above b."""
    return sum(float(p) for p, o in zip(probs, orders, strict=True) if o.index(a) < o.index(b))


low, high = 0.0, 5.0
for _ in range(60):
    theta = (low + high) / 2
    low, high = (theta, high) if first_wins(mallows(theta), 0, 1) < duel else (low, theta)

# Thurstone's orders: the perceived values of the three, on a fine grid of the middle one's noise.
grid = torch.linspace(-9, 9, 20001, dtype=torch.float64)


def thurstone_order(o):
    """Return the probability that the perceived values have this order."""
    top, middle, last = r[list(o)].tolist()
    density = (-0.5 * grid**2).exp() / math.sqrt(2 * math.pi)
    above = torch.special.ndtr((top - middle) / std - grid)
    below = torch.special.ndtr((middle - last) / std + grid)
    return float(torch.trapezoid(density * above * below, grid))


by_thurstone = torch.tensor([thurstone_order(o) for o in orders], dtype=torch.float64)
by_mallows = mallows(theta)
print("                  1st over 2nd  1st over 3rd  order 1,2,3  order 3,2,1")
for name, probs in {"Plackett–Luce": by_luce, "Thurstone": by_thurstone, "Mallows": by_mallows}.items():
    pairs = [first_wins(probs, 0, 1), first_wins(probs, 0, 2), float(probs[0]), float(probs[-1])]
    print(f"{name:16}" + "".join(f"{p:13.3f}" for p in pairs))
alike = [
    " ".join(str(k + 1) for k in o) for o, p, q in zip(orders, by_luce, by_mallows, strict=True) if abs(p - q) < 1e-9
]
print("Plackett–Luce and Mallows agree exactly on", ", ".join(alike))
print(f"Plackett–Luce, order 1,2,3, to six places: {by_luce[0]:.6f}; Thurstone's std {std:.3f}, Mallows' θ {theta:.3f}")
print(
    f"Elo: 400 points ahead is an expected score of {reward_losses.elo_expected(torch.tensor(400.0).double(), torch.tensor(0.0).double()):.6f}"
)

# %%
# figure: models
# alt: Left, the probability that a is preferred to b against the difference of rewards, for Bradley–Terry and for Thurstone with its noise matched
#   at a difference of 1. Both are S curves through one half, and the two lines almost coincide. Right, bars of the probability of each of the
#   six orders of three completions under Plackett–Luce, Thurstone and Mallows. The order 1, 2, 3 is the most probable one under all three. Mallows gives equal bars to orders at the same distance from it; Plackett–Luce does not.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.0), width_ratios=(2, 3), layout="constrained")
d = torch.linspace(-6, 6, 200, dtype=torch.float64)
zero = torch.zeros_like(d)
left.plot(d, reward_losses.bradley_terry(d, zero), color=PALETTE["blue"], label="Bradley–Terry")
left.plot(d, reward_losses.thurstone(d, zero, std=std), color=PALETTE["red"], ls="--", label="Thurstone")
left.set(xlabel="difference of rewards, nats", ylabel="P(a preferred to b)")
left.legend(frameon=False)
for shift, (name, probs, colour) in enumerate(
    (("Plackett–Luce", by_luce, "blue"), ("Thurstone", by_thurstone, "red"), ("Mallows", by_mallows, "green"))
):
    right.bar(torch.arange(6) + 0.27 * (shift - 1), probs, width=0.25, color=PALETTE[colour], label=name)
right.set_xticks(range(6), [" ".join(str(k + 1) for k in o) for o in orders])
right.set(xlabel="order, best first", ylabel="probability")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# Data seldom show which noise people have: the two curves on the left differ very little. Mallows is different. It has no rewards,
# only a consensus, and each exchange of neighbours has the same cost.
#
# ## A cycle that ratings cannot represent
#
# Three models play in a cycle: each beats the next one in seven of ten games. None is better on average. We compute the maximum-likelihood rewards of Bradley–Terry
# from the exact probabilities, by Zermelo's iteration:

# %%
elo_thinks = predict(
    "After 1,000 games, what is the mean difference between the best and the worst Elo rating (k = 32)?",
    "0 points",
    "about 10 points",
    "more than 50 points",
)

# %%
# NBVAL_CHECK_OUTPUT
ring = cycles.ring(0.7)
print("Bradley–Terry rewards:", shown(social_choice.bradley_terry_fit(ring)))
print(f"log-odds around the cycle: {social_choice.cycle_log_odds(ring):.4f} nats; with three rewards they are 0")
fitted_probs = reward_losses.bradley_terry(
    *torch.broadcast_tensors(
        *[social_choice.bradley_terry_fit(ring)[i] for i in ((slice(None), None), (None, slice(None)))]
    )
)
print(
    "so the fitted probability that the first beats the second is",
    shown(fitted_probs[0, 1]),
    "and the true one",
    shown(ring[0, 1]),
)

# %%
generator = torch.Generator().manual_seed(0)
played = torch.stack([cycles.play(ring, 1000, generator) for _ in progress(range(20), "tournaments")])
ratings = cycles.elo_ratings(played, 3, k=32.0)  # (20, 1001, 3)
spread = float((ratings[:, -1].amax(-1) - ratings[:, -1].amin(-1)).mean())
print(f"Elo, k = 32: best minus worst is {spread:.0f} points on average over 20 tournaments")
print(
    f"ten seeds of 50 tournaments: {min(results.values('ring_elo_32')):.0f} to {max(results.values('ring_elo_32')):.0f}"
)
elo_thinks.reveal("more than 50 points" if spread > 50 else "about 10 points" if spread > 5 else "0 points")

# %%
assert spread > 50 and results.holds("ring_elo_32", above=50)

# %%
# figure: ring
# alt: Elo ratings of three players over 1,000 games of one tournament in a cycle in which all are equally good on average. The three lines move up and down, mostly within 100 points of zero, and
#   cross many times. A horizontal line at 0 is the Bradley–Terry rating of all three from the exact probabilities.
fig, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
for player, colour in enumerate(("blue", "red", "green")):
    ax.plot(ratings[0, :, player], color=PALETTE[colour], lw=0.9, label=f"player {player + 1}")
ax.axhline(0, color=PALETTE["black"], lw=1, ls="--", label="Bradley–Terry, exact")
ax.set(xlabel="games", ylabel="Elo rating, points")
ax.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.17))
plt.show()

# %% [markdown]
# At any time this looks like a ranking, but no player is better on average. The distance between best and worst does not differ significantly from the distance among three equal players
# (the chapter gives both, and the minimum detectable difference). For equal players it comes only from the noise of a constant step. A rating with one number per player cannot represent "beats *this* one". A test of fit detects the cycle: predict each
# pair's win rate from the ratings and compare.

# %%
print("fraction of 200 tournaments in which the test rejects Bradley–Terry at 5 % (range over ten seeds)")
print("games per pair             cycle, .6     Bradley–Terry is true")
for n in (20, 100, 200):
    cells = [
        f"{min(results.values(f'seen_{w}_{n}')):.2f} to {max(results.values(f'seen_{w}_{n}')):.2f}"
        for w in ("ring", "true")
    ]
    print(f"{n:8} {cells[0]:>23} {cells[1]:>23}")

# %% [markdown]
# ## One rule for two voters
#
# Two voters order three alternatives. A *rule* decides each pair of alternatives separately, from the two voters' orders of this pair: a table with four entries for each of three pairs, so
# $16^3 = 4096$ rules. We check all of them, each on all 36 profiles of orders.

# %%
fair = predict(
    "How many of the 4,096 rules are never cyclic, satisfy unanimity, and have no dictator?",
    0,
    2,
    12,
    94,
)

# %%
# NBVAL_CHECK_OUTPUT
census = voting.arrow_census()
sound = census.transitive & census.pareto
print(f"{len(census.rules)} rules: {int(census.transitive.sum())} are never cyclic")
print(f"{int(census.pareto.sum())} satisfy unanimity")
print(
    f"{int(sound.sum())} satisfy both; the dictators are voter",
    " and voter ".join(str(voting.dictated_by(rule)) for rule in census.rules[sound]),
)
circles = census.cyclic.sum(-1)
print("the 64 rules that satisfy unanimity, by their number of cyclic profiles of 36:")
print("  ", {int(n): int((circles[census.pareto] == n).sum()) for n in circles[census.pareto].unique()})
fair.reveal(sum(voting.dictated_by(rule) is None for rule in census.rules[sound]))

# %%
# figure: arrow
# alt: A square of 64 by 64 small cells, one for each rule, shaded by the number of profiles of 36 on which the rule is cyclic, from pale, none, to dark, all. Dark and pale cells form a regular
#   lattice; 94 cells are palest. Small frames mark the 64 rules that satisfy unanimity. Two of them are never cyclic; they are filled with colour and labelled voter 1 decides and voter 2 decides.
fig, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
image = ax.imshow(circles.reshape(64, 64), cmap="Blues", vmin=0, vmax=36)
fig.colorbar(image, ax=ax, label="cyclic profiles, of 36", shrink=0.85)
follow = census.pareto.nonzero().flatten()
ax.scatter(
    follow % 64,
    follow // 64,
    marker="s",
    s=14,
    facecolors="none",
    edgecolors=PALETTE["orange"],
    lw=0.7,
    label="satisfies unanimity",
)
for rule in sound.nonzero().flatten().tolist():
    ax.scatter(rule % 64, rule // 64, marker="s", s=26, color=PALETTE["red"])
    who = voting.dictated_by(census.rules[rule])
    ax.annotate(
        f"voter {who} decides",
        (rule % 64, rule // 64),
        (8, 8 if who == 1 else -14),
        textcoords="offset points",
        color=PALETTE["red"],
    )
ax.set(xticks=[], yticks=[], title="all 4,096 rules")
ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.01))
plt.show()

# %% [markdown]
# The framed rules satisfy unanimity. Only two of them are never cyclic, and each repeats one voter. This is Arrow's theorem for two voters, proved by enumeration.
#
# With an odd number of voters the majority decides every pair. How often is the result cyclic, if all orders are equally probable?

# %%
# NBVAL_CHECK_OUTPUT
for voters in (3, 5, 7):
    cyclic, total = voting.majority_cycles(voters)
    print(f"{voters} voters: {cyclic} of {total} profiles, {cyclic / total:.4f}")

# %% [markdown]
# ## Two groups, one reward model
#
# A short, a middle and a long completion. For one half of the people they have the utilities 1, .2, −1, for the other half −1, .2, 1. All people label all pairs, nearly without errors, and we fit Bradley–Terry to
# all labels together. Then we compute the optimal policy for this reward, at β = ½ from a uniform reference.

# %%
average = predict(
    "With a policy for their own group, everybody has a mean utility of .84. What is it with the one policy for all?",
    "about .7",
    "about .4",
    "less than .1",
)

# %%
# NBVAL_CHECK_OUTPUT
half = groups.shares(0.5)
pooled = groups.pooled_reward(groups.OPPOSITE, half, noise=0.1)
print("fitted rewards:", shown(pooled, 4), "  policy:", shown(groups.policy_for(pooled), 3))
tables = {share: groups.remedies(groups.OPPOSITE, groups.shares(share), noise=0.1) for share in (0.5, 0.6)}
print("\nmean utility of the groups          half and half     60 % and 40 %")
for name in tables[0.5]:
    print(f"{name:34} {shown(tables[0.5][name], 3):>15} {shown(tables[0.6][name], 3):>17}")
utility = float(tables[0.5]["one reward model for all labels"][0])
average.reveal("less than .1" if utility < 0.1 else "about .4" if utility < 0.55 else "about .7")

# %% [markdown]
# Their disagreements cancel, and the fitted reward is flat: the policy stays at the reference. *A reward model treats disagreement as noise.* With groups of 60 % and 40 % the fitted reward favours the larger group. At this noise its
# difference between short and long is about one seventh of the difference of the mean utilities.
#
# Now the first group, 60 %, has mild preferences, and the other group has strong preferences for the opposite. Which completion has the highest reward?

# %%
# figure: tastes
# alt: Left, the reward that Bradley–Terry fits to the labels of all people, for a short, a middle and a long completion, against the noise of the labels on a logarithmic axis. With little noise the short completion, which the mild
#   majority prefers, is highest; in between the middle one; with much noise the long completion, which the strong minority prefers. Right, mean utility of each of two equally large groups with opposite tastes under five remedies:
#   the first four bars are short and the last, each their own, is many times as long.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
noises = torch.logspace(-1.5, 0.6, 40).tolist()
fits = torch.stack([groups.pooled_reward(groups.MILD_AND_STRONG, groups.shares(0.6), noise=n) for n in noises])
for reply, colour in zip(range(3), ("blue", "orange", "red"), strict=True):
    left.semilogx(noises, fits[:, reply], color=PALETTE[colour], label=groups.REPLIES[reply])
left.set(xlabel="noise of the labels", ylabel="fitted reward")
left.legend(frameon=False, title="60 % mildly prefer short,\n40 % strongly prefer long")
names = [name for name in tables[0.5] if name != "maximum of the worst group"]
right.barh(names[::-1], [float(tables[0.5][name][0]) for name in names[::-1]], color=PALETTE["blue"], height=0.6)
for row, name in enumerate(names[::-1]):
    right.annotate(
        f"{tables[0.5][name][0]:.2f}",
        (float(tables[0.5][name][0]), row),
        (3, 0),
        textcoords="offset points",
        va="center",
    )
right.set(xlabel="mean utility of each group, half and half", xlim=(0, 1))
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
print("noise   fitted rewards (short, middle, long)   highest")
winners = []
for noise in (0.05, 0.1, 0.25, 0.5, 1.0):
    fit = groups.pooled_reward(groups.MILD_AND_STRONG, groups.shares(0.6), noise=noise)
    winners.append(groups.REPLIES[int(fit.argmax())])
    print(f"{noise:5.2f}   {shown(fit, 4):30}         {winners[-1]}")
print("mean of the utilities:", shown(groups.shares(0.6) @ groups.MILD_AND_STRONG, 2))

# %% [markdown]
# People and tastes are the same. With very careful labels the number of people decides, with careless labels the strength of their preferences. In between the middle completion wins. No person chose this rule.
#
# If the groups are known, condition on the user. If they are unknown, a mixture model can estimate them: guess who belongs where, fit one reward model to each group, guess again.

# %%
assigned = predict(
    "Two hidden groups, 100 people, 20 labels each. How many people are assigned to their own group?",
    "about 50",
    "about 70",
    "about 90",
)

# %%
taste = torch.tensor([0.6, 0.36, 0.12, -0.12, -0.36, -0.6], dtype=torch.float64)
made = groups.label(torch.stack([taste, -taste]), 100, 20, generator)
belongs, fitted = groups.find_groups(made.wins, generator)
right_group = float(((belongs > 0.5) == (made.group == 0)).double().mean())
print(f"assigned to their own group: {100 * max(right_group, 1 - right_group):.0f} of 100 people")
by_coin = sum(math.comb(100, k) * max(k, 100 - k) for k in range(101)) / 2**100  # the groups have no names
print(f"random assignment, under the better of the two namings: {by_coin:.0f} %")
for each in (5, 20, 80):
    people = results.values(f"groups_{each}_found")
    pairs = results.values(f"groups_{each}_model")
    print(
        f"ten seeds, {each:2} labels each: {100 * min(people):.0f} to {100 * max(people):.0f} people, {100 * min(pairs):.0f} to {100 * max(pairs):.0f} % of the pairs in the right order"
    )
share_found = 100 * max(right_group, 1 - right_group)
assigned.reveal("about 90" if share_found > 80 else "about 70" if share_found > 60 else "about 50")

# %%
assert share_found > 75 and results.holds("groups_20_found", above=0.75)

# %% [markdown]
# ## Gains, losses and probabilities
#
# People do not choose as the axioms say. In prospect theory they evaluate gains and losses from a reference point, losses weigh 2.25 times as much, and probabilities are transformed. The same two
# amounts, from the reference points 0 and 2:

# %%
# NBVAL_CHECK_OUTPUT
one = lambda x: torch.tensor(float(x), dtype=torch.float64)
print("from 0: 1 for sure, value       ", shown(choice.prospect_value(one(1)), 3))
print("        2 or 0, by a coin flip ", shown(choice.probability_weight(one(0.5)) * choice.prospect_value(one(2)), 3))
print("from 2: 1 for sure, one lost   ", shown(choice.prospect_value(one(-1)), 3))
print(
    "        2 or 0, by a coin flip ",
    shown(choice.probability_weight(one(0.5), gamma=0.69) * choice.prospect_value(one(-2)), 3),
)

# %%
# figure: prospect
# alt: Left, the value of gains and losses: a curve through the origin that flattens to the right and falls more than twice as steeply to the left. Right, the weight of a probability: above the diagonal
#   for probabilities below about one third, below it for larger ones.
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
z = torch.linspace(-4, 4, 400, dtype=torch.float64)
left.plot(z, choice.prospect_value(z), color=PALETTE["blue"])
left.plot(z, z, color="0.6", lw=0.8, ls=":")
left.axvline(0, color="0.6", lw=0.6)
left.set(xlabel="gain from the reference point", ylabel="value")
p = torch.linspace(0, 1, 400, dtype=torch.float64)
right.plot(p, choice.probability_weight(p), color=PALETTE["blue"])
right.plot(p, p, color="0.6", lw=0.8, ls=":")
right.set(xlabel="probability", ylabel="weight in the choice")
plt.show()

# %% [markdown]
# From 0 the sure amount has the higher value, from 2 the coin flip. Only the reference point has changed. So a comparison does not depend on the two completions alone.
#
# ## The off-switch game
#
# A machine has a plan. It may act, switch itself off (utility 0), or leave the decision to a person. It believes that the plan has the utility −1 or 2 for the person, half and half. What does it gain by asking?

# %%
gain = predict("What does the machine gain by asking, compared with deciding alone?", 0.0, 0.25, 0.5, 1.0)

# %%
# NBVAL_CHECK_OUTPUT
belief = torch.tensor([0.5, 0.5], dtype=torch.float64)
plan = torch.tensor([-1.0, 2.0], dtype=torch.float64)
asked = choice.deference_gain(belief, plan)
print("alone: act, mean utility", shown(belief @ plan), "  asking gains", shown(asked))
print(
    "the machine has one number for everybody, .5, and no uncertainty: asking gains",
    shown(choice.deference_gain(one(1)[None], one(0.5)[None])),
)
print("… and if the person errs (τ = 1):", shown(choice.deference_gain(one(1)[None], one(0.5)[None], noise=1.0), 3))
gain.reveal(float(asked))

# %%
# figure: switch
# alt: Gain of a machine from leaving the switch to a person, against the standard deviation of its belief about the utility of the plan, whose mean is one half. For a person without errors the gain is 0 until the utility may be negative, and then rises. For persons with errors it starts below
#   0, lower for more errors, and becomes positive only if the machine is uncertain enough.
fig, ax = plt.subplots(figsize=(6, 3.0), layout="constrained")
doubts = torch.linspace(0, 3, 121, dtype=torch.float64)
both = torch.stack([0.5 - doubts, 0.5 + doubts], -1)  # (121, 2)
for tau, colour in ((0.0, "blue"), (0.5, "orange"), (1.0, "red")):
    gains = choice.deference_gain(belief.expand_as(both), both, noise=tau)
    ax.plot(doubts, gains, color=PALETTE[colour], label=f"τ = {tau:g}")
ax.axhline(0, color="0.3", lw=0.8, zorder=0)
ax.set(xlabel="standard deviation of the belief (mean ½)", ylabel="gain from asking")
ax.legend(frameon=False, title="noise of the person")
plt.show()

# %% [markdown]
# A machine that is certain of its reward gains nothing from being corrected, and if people make errors it loses. So a reward that was averaged over people, without its uncertainty, removes the machine's reason to ask them.
#
# ## A failure on purpose: a third completion
#
# 60 % of the people prefer a to b, 40 % prefer b to a. Then a third completion c is added. *Everybody* ranks c below b; the people who prefer b rank c above a. All pairs are labelled, nearly without errors.

# %%
copy = predict("With c, which completion has the highest fitted reward?", "a", "b", "c")

# %%
# NBVAL_CHECK_OUTPUT
tastes = torch.tensor([[1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]], dtype=torch.float64)  # (groups, replies)
crowd = groups.shares(0.6)
without = groups.pooled_reward(tastes[:, :2], crowd, noise=0.1)
with_c = groups.pooled_reward(tastes, crowd, noise=0.1)
print("a and b only:  a − b =", shown(without[0] - without[1], 4))
print("with c:        a − b =", shown(with_c[0] - with_c[1], 4))
print(
    "Borda scores of a, b, c:",
    shown(social_choice.borda_scores(social_choice.mixture_preference(tastes / 0.1, crowd)), 3),
)
copy.reveal("abc"[int(with_c.argmax())])

# %% [markdown]
# No person changed their mind about a and b, and a majority prefers a to b and to c: a is the *Condorcet winner*. Only the list of completions changed. A Bradley–Terry fit to many people follows the Borda count, and the Borda score depends on *the other* completions.
# By Arrow's theorem, every rule that is always transitive, satisfies unanimity and has no dictator violates independence.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Add a fourth player to the cycle who loses to all three in eight of ten games. Does Bradley–Terry still give the three equal ratings? And Elo?
# * Check the rules for two voters again, but call a rule cyclic only if more than two of the 36 profiles are. How many rules without a dictator satisfy everything now?
# * In `groups.remedies`, replace the mean minus *one* standard deviation by the mean minus `c` standard deviations. How does the utility of each group change with `c`, and at what KL?
#
# The graded exercises of this chapter: `minirlhf check 06`.
