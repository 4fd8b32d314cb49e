# %% [markdown]
# # 06 · What does a comparison add up to?
#
# A reward model gives every reply one number. People gave it no numbers: they said which of two replies they prefer, many people, many times.
# **When does a pile of comparisons add up to one number for each reply, and what becomes of the rest?**
#
# Nearly everything below is exact: small enough to write down all cases and count them.

# %%
import itertools
import math

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import choice, reward_losses, social_choice
from minirlhf_course import evidence
from minirlhf_course.chapters.ch06_nature_of_preferences import cycles, groups, voting
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
predict = Predictions("06")
seen = evidence.StudyResults("ch06")  # ten seeds of everything here that is sampled


def shown(x, digits=2):
    """Numbers of a tensor as text, zero without a sign."""
    return "  ".join(f"{v + 0.0:.{digits}f}" for v in (x * 10**digits).round().div(10**digits).flatten().tolist())


# %% [markdown]
# ## A pump for money
#
# Somebody prefers a to b, b to c, and c to a. They hold a, and they will always pay one cent to get what they prefer. A dealer owns one of each.

# %%
poorer = predict("What has the dealer earned after 30 offers?", "nothing", "1 cent", "3 cents", "30 cents")

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
# Every single trade was an improvement to them. That is what the axiom of *transitivity* forbids; whoever keeps it, and three more axioms, acts as if
# every outcome had one number. Reward models take that number for granted.
#
# ## Four models of a choice, one example
#
# Three answers are worth 2, 1 and 0 nats. Choose the best by softmax, then the next from the rest: Plackett–Luce, in one line of ours.


# %%
def luce(rewards):
    """Probability of the order in which the rewards stand: choose by softmax, take it out, choose again."""
    return math.prod(float(rewards[k:].softmax(-1)[0]) for k in range(len(rewards)))


# %%
# NBVAL_CHECK_OUTPUT
r = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
orders = list(itertools.permutations(range(3)))
by_luce = torch.tensor([luce(r[list(o)]) for o in orders], dtype=torch.float64)
torch.testing.assert_close(by_luce, reward_losses.plackett_luce_logp(r[torch.tensor(orders)]).exp())

# Thurstone's noise and Mallows' dispersion are set so that the first answer beats the second just as often.
duel = float(reward_losses.bradley_terry(r[0], r[1]))
std = float(1 / (math.sqrt(2) * torch.special.ndtri(torch.tensor(duel, dtype=torch.float64))))


def mallows(dispersion):
    """``(6,)``: probability of each order around the consensus 0, 1, 2."""
    return reward_losses.mallows_logp(torch.tensor(orders), dispersion=dispersion).exp()


def first_wins(probs, a, b):
    """Probability that answer a stands above answer b."""
    return sum(float(p) for p, o in zip(probs, orders, strict=True) if o.index(a) < o.index(b))


low, high = 0.0, 5.0
for _ in range(60):
    theta = (low + high) / 2
    low, high = (theta, high) if first_wins(mallows(theta), 0, 1) < duel else (low, theta)

# Thurstone's orders: the felt values of the three, on a fine grid of the middle one's noise.
grid = torch.linspace(-9, 9, 20001, dtype=torch.float64)


def thurstone_order(o):
    """Probability that the felt values stand in this order."""
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
#   at a difference of 1. Both are S curves through one half, and the two lines almost cover each other. Right, bars of the probability of each of the
#   six orders of three answers under Plackett–Luce, Thurstone and Mallows. The order 1, 2, 3 is likeliest under all three; Mallows gives equal bars to orders that are equally far from it; Plackett–Luce does not.
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
# Which noise people have hardly shows: the two curves on the left differ by less than data usually can tell. Mallows is of another kind. It has no distances
# between answers, only a consensus, and each exchange of neighbours costs the same.
#
# ## A circle that ratings cannot say
#
# Three models meet: each beats the next one in seven of ten games, around a ring. Nobody is better than anybody. Bradley–Terry's rewards of greatest likelihood,
# from the exact probabilities, by Zermelo's iteration:

# %%
elo_thinks = predict(
    "How far apart, on average, does Elo (k = 32) put the best and the worst of them after 1,000 games?",
    "0 points",
    "about 10 points",
    "more than 50 points",
)

# %%
# NBVAL_CHECK_OUTPUT
ring = cycles.ring(0.7)
print("Bradley–Terry rewards:", shown(social_choice.bradley_terry_fit(ring)))
print(f"log-odds around the ring: {social_choice.cycle_log_odds(ring):.4f} nats; three rewards can only say 0")
said = reward_losses.bradley_terry(
    *torch.broadcast_tensors(
        *[social_choice.bradley_terry_fit(ring)[i] for i in ((slice(None), None), (None, slice(None)))]
    )
)
print(
    "so the fitted chance of the first against the second is",
    shown(said[0, 1]),
    "where the truth is",
    shown(ring[0, 1]),
)

# %%
generator = torch.Generator().manual_seed(0)
played = torch.stack([cycles.play(ring, 1000, generator) for _ in progress(range(20), "tournaments")])
ratings = cycles.elo_ratings(played, 3, k=32.0)  # (20, 1001, 3)
spread = float((ratings[:, -1].amax(-1) - ratings[:, -1].amin(-1)).mean())
print(f"Elo, k = 32: best and worst are {spread:.0f} points apart on average over 20 tournaments")
print(f"ten seeds of 50 tournaments: {min(seen.values('ring_elo_32')):.0f} to {max(seen.values('ring_elo_32')):.0f}")
elo_thinks.reveal("more than 50 points" if spread > 50 else "about 10 points" if spread > 5 else "0 points")

# %%
assert spread > 50 and seen.holds("ring_elo_32", above=50)

# %%
# figure: ring
# alt: Elo ratings of three players over 1,000 games of one tournament around a ring in which all are equally good. The three lines wander up and down, mostly within 100 points of zero, and
#   change places many times. A straight line at 0 marks what Bradley–Terry gives to all three from the exact probabilities.
fig, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
for player, colour in enumerate(("blue", "red", "green")):
    ax.plot(ratings[0, :, player], color=PALETTE[colour], lw=0.9, label=f"player {player + 1}")
ax.axhline(0, color=PALETTE["black"], lw=1, ls="--", label="Bradley–Terry, exact")
ax.set(xlabel="games", ylabel="Elo rating, points")
ax.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.17))
plt.show()

# %% [markdown]
# At any moment this looks like a ranking, and there is nothing to rank. Three players who toss coins end as far apart (the study measures both): it is the noise of a step that
# never shrinks. A rating of one number per player has no place for "beats *this* one". What shows the circle is a test of fit: predict the
# pair's win rates from the ratings and look at what is left over.

# %%
print("Bradley–Terry's misfit beyond its 95 % point, in how many of 200 tournaments (ten seeds)")
print("games per pair     ring, .6 each way     Bradley–Terry is true")
for n in (20, 100, 200):
    cells = [
        f"{min(seen.values(f'seen_{w}_{n}')):.2f} to {max(seen.values(f'seen_{w}_{n}')):.2f}" for w in ("ring", "true")
    ]
    print(f"{n:8} {cells[0]:>23} {cells[1]:>23}")

# %% [markdown]
# ## One rule for two voters
#
# Two voters order three answers. A *rule* decides each pair of answers by itself, from how the two voters order that pair: for each of three pairs a table with four entries, so
# $16^3 = 4096$ rules. Go through all of them, and for each through all 36 profiles of orders.

# %%
fair = predict(
    "How many of the 4,096 rules never go in a circle, follow both voters where they agree, and have no dictator?",
    0,
    2,
    12,
    94,
)

# %%
# NBVAL_CHECK_OUTPUT
census = voting.arrow_census()
sound = census.transitive & census.pareto
print(f"{len(census.rules)} rules: {int(census.transitive.sum())} never go in a circle")
print(f"{int(census.pareto.sum())} follow both voters where they agree")
print(
    f"{int(sound.sum())} do both; the dictators are voter",
    " and voter ".join(str(voting.dictated_by(rule)) for rule in census.rules[sound]),
)
circles = census.cyclic.sum(-1)
print("of the 64 that follow unanimity, rules by their number of circular profiles of 36:")
print("  ", {int(n): int((circles[census.pareto] == n).sum()) for n in circles[census.pareto].unique()})
fair.reveal(sum(voting.dictated_by(rule) is None for rule in census.rules[sound]))

# %%
# figure: arrow
# alt: A square of 64 by 64 small cells, one for each rule, shaded by the number of profiles of 36 on which the rule goes in a circle, from pale, none, to dark, all. Dark and pale cells form a regular
#   lattice; 94 cells are palest. Small frames mark the 64 rules that follow unanimity; two of them, filled with colour, are pale as well, and they are labelled voter 1 decides and voter 2 decides.
fig, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
image = ax.imshow(circles.reshape(64, 64), cmap="Blues", vmin=0, vmax=36)
fig.colorbar(image, ax=ax, label="profiles of 36 that end in a circle", shrink=0.85)
follow = census.pareto.nonzero().flatten()
ax.scatter(
    follow % 64,
    follow // 64,
    marker="s",
    s=14,
    facecolors="none",
    edgecolors=PALETTE["orange"],
    lw=0.7,
    label="follows unanimity",
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
# The framed rules are those that do what both voters want where they agree. Two of them are sound, and each belongs to one voter. That is Arrow's theorem for two voters, and the proof was to look.
#
# With an odd number of voters the majority decides every pair. How often does it go in a circle, if all orders are equally likely?

# %%
# NBVAL_CHECK_OUTPUT
for voters in (3, 5, 7):
    cyclic, total = voting.majority_cycles(voters)
    print(f"{voters} voters: {cyclic} of {total} profiles, {cyclic / total:.4f}")

# %% [markdown]
# ## Two groups, one reward model
#
# A short, a middle and a long reply. One half of the people values them at 1, .2, −1, the other half at −1, .2, 1. All label all pairs, nearly without errors, and Bradley–Terry is fitted to
# all labels together. Then the policy that is best for that reward, at β = ½ from a uniform reference.

# %%
average = predict(
    "A policy of one's own would be worth .84 to everybody. What is the policy for all worth to them?",
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
print("\nworth to the groups                 half and half     60 % and 40 %")
for name in tables[0.5]:
    print(f"{name:34} {shown(tables[0.5][name], 3):>15} {shown(tables[0.6][name], 3):>17}")
worth = float(tables[0.5]["one reward model for all labels"][0])
average.reveal("less than .1" if worth < 0.1 else "about .4" if worth < 0.55 else "about .7")

# %% [markdown]
# Their disagreements cancel, and what is left of the reward is flat: the policy does not move from the reference. *Disagreement is read as noise.* At 60 to 40 the fitted reward points towards the larger group, and its
# difference of short and long, at this noise, is a seventh of that of the mean utilities.
#
# Now the first group, 60 %, has a mild taste, and the others have a strong one, for the opposite. Whose reply comes out on top?

# %%
# figure: tastes
# alt: Left, the reward that Bradley–Terry fits to the labels of all people, for a short, a middle and a long reply, against the noise of the labels on a logarithmic axis. With little noise the short reply, which the mild
#   majority likes, is highest; in between the middle one; with much noise the long reply, which the strong minority likes. Right, what five ways of serving two equally large groups with opposite tastes are worth to each of them:
#   the first four bars are short and the last, everybody their own, is many times as long.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
noises = torch.logspace(-1.5, 0.6, 40).tolist()
fits = torch.stack([groups.pooled_reward(groups.MILD_AND_STRONG, groups.shares(0.6), noise=n) for n in noises])
for reply, colour in zip(range(3), ("blue", "orange", "red"), strict=True):
    left.semilogx(noises, fits[:, reply], color=PALETTE[colour], label=groups.REPLIES[reply])
left.set(xlabel="noise of the labels", ylabel="fitted reward")
left.legend(frameon=False, title="60 % mildly for short,\n40 % strongly for long")
names = [name for name in tables[0.5] if name != "the best for the worst off"]
right.barh(names[::-1], [float(tables[0.5][name][0]) for name in names[::-1]], color=PALETTE["blue"], height=0.6)
for row, name in enumerate(names[::-1]):
    right.annotate(
        f"{tables[0.5][name][0]:.2f}",
        (float(tables[0.5][name][0]), row),
        (3, 0),
        textcoords="offset points",
        va="center",
    )
right.set(xlabel="worth to either group, half and half", xlim=(0, 1))
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
# Same people, same tastes. With very careful labels the number of people decides, with careless ones the strength of their feelings; in between the middle reply wins. Nobody chose that rule.
#
# If the groups are known, the remedy is to ask who is speaking. If nobody named them, a mixture can find them: guess who belongs where, fit one reward model to each guess, guess again.

# %%
found = predict(
    "Two hidden groups, 100 people, 20 labels each. How many people are put with their own?",
    "about 50",
    "about 70",
    "about 90",
)

# %%
taste = torch.tensor([0.6, 0.36, 0.12, -0.12, -0.36, -0.6], dtype=torch.float64)
made = groups.label(torch.stack([taste, -taste]), 100, 20, generator)
belongs, fitted = groups.find_groups(made.wins, generator)
right_group = float(((belongs > 0.5) == (made.group == 0)).double().mean())
print(f"with their own: {100 * max(right_group, 1 - right_group):.0f} of 100 people")
by_coin = sum(math.comb(100, k) * max(k, 100 - k) for k in range(101)) / 2**100  # the groups have no names
print(f"by tossing coins, under the better of the two namings: {by_coin:.0f} %")
for each in (5, 20, 80):
    people = seen.values(f"groups_{each}_found")
    pairs = seen.values(f"groups_{each}_model")
    print(
        f"ten seeds, {each:2} labels each: {100 * min(people):.0f} to {100 * max(people):.0f} people, {100 * min(pairs):.0f} to {100 * max(pairs):.0f} % of the pairs in the right order"
    )
share_found = 100 * max(right_group, 1 - right_group)
found.reveal("about 90" if share_found > 80 else "about 70" if share_found > 60 else "about 50")

# %%
assert share_found > 75 and seen.holds("groups_20_found", above=0.75)

# %% [markdown]
# ## Gains, losses, and small chances
#
# People do not weigh like the axioms say. In prospect theory they see gains and losses from where they stand, losses weigh 2.25 times as much, and chances are bent. The same two
# amounts, seen from 0 and from 2:

# %%
# NBVAL_CHECK_OUTPUT
one = lambda x: torch.tensor(float(x), dtype=torch.float64)
print("from 0: 1 for sure is worth    ", shown(choice.prospect_value(one(1)), 3))
print("        2 or 0, by a coin      ", shown(choice.probability_weight(one(0.5)) * choice.prospect_value(one(2)), 3))
print("from 2: 1 for sure, one lost   ", shown(choice.prospect_value(one(-1)), 3))
print(
    "        2 or 0, by a coin      ",
    shown(choice.probability_weight(one(0.5), gamma=0.69) * choice.prospect_value(one(-2)), 3),
)

# %%
# figure: prospect
# alt: Left, the value of gains and losses: a curve through the origin that flattens to the right and falls more than twice as steeply to the left. Right, the weight of a probability: above the diagonal
#   for chances below about one third, below it for larger ones.
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
# From 0 the sure thing wins; from 2 the coin does. Nothing has changed but the point from which people look. A comparison is not a fact about two replies alone.
#
# ## A switch that is left alone
#
# A machine has a plan. It may act, switch itself off (worth 0), or leave the decision to a person. It believes that the plan is worth −1 or 2 to the person, half and half. What does it gain by asking?

# %%
gain = predict("…over the best that it can do alone?", 0.0, 0.25, 0.5, 1.0)

# %%
# NBVAL_CHECK_OUTPUT
belief = torch.tensor([0.5, 0.5], dtype=torch.float64)
plan = torch.tensor([-1.0, 2.0], dtype=torch.float64)
asked = choice.deference_gain(belief, plan)
print("alone: act, worth on average", shown(belief @ plan), "  asking gains", shown(asked))
print(
    "the machine has one number for everybody, .5, and no doubt: asking gains",
    shown(choice.deference_gain(one(1)[None], one(0.5)[None])),
)
print("… and if the person errs (τ = 1):", shown(choice.deference_gain(one(1)[None], one(0.5)[None], noise=1.0), 3))
gain.reveal(float(asked))

# %%
# figure: switch
# alt: What a machine gains by leaving the switch to a person, against how unsure it is about the plan's worth, whose mean is one half. For a person who never errs the gain is 0 until the plan may be worth less than nothing, and then rises. For persons who err it starts below
#   0, the lower the more they err, and crosses 0 only when the machine is unsure enough.
fig, ax = plt.subplots(figsize=(6, 3.0), layout="constrained")
doubts = torch.linspace(0, 3, 121, dtype=torch.float64)
both = torch.stack([0.5 - doubts, 0.5 + doubts], -1)  # (121, 2)
for tau, colour in ((0.0, "blue"), (0.5, "orange"), (1.0, "red")):
    gains = choice.deference_gain(belief.expand_as(both), both, noise=tau)
    ax.plot(doubts, gains, color=PALETTE[colour], label=f"τ = {tau:g}")
ax.axhline(0, color="0.3", lw=0.8, zorder=0)
ax.set(xlabel="doubt: the plan is worth ½ ± this", ylabel="gain of leaving the switch alone")
ax.legend(frameon=False, title="errors of the person")
plt.show()

# %% [markdown]
# A machine that is sure of its reward gains nothing from being corrected, and if people err it loses. So a reward that was averaged over people, and remembers no doubt, takes away the machine's reason to ask them.
#
# ## A failure on purpose: one reply too many
#
# 60 % of the people prefer a to b, 40 % prefer b to a. Then a third reply c joins the list. *Everybody* finds c worse than b; those who prefer b find it better than a. All pairs are labelled, nearly without errors.

# %%
copy = predict("With c in the list, whose fitted reward is the highest?", "a's", "b's", "c's")

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
copy.reveal("abc"[int(with_c.argmax())] + "'s")

# %% [markdown]
# Nobody changed their mind about a and b, and a majority prefers a to either of the others: a is the *Condorcet winner*. What changed is the list. Bradley–Terry's fit to many people follows the Borda count, and Borda asks how often an answer beats *the others*, whichever they are.
# Arrow's theorem says that something like this must happen to every rule that is worth having.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Give the ring a fourth player who loses to all three in eight of ten games. Does Bradley–Terry still say that the three are equal? And Elo?
# * Go through the rules for two voters again, but let a circle count only if it happens in more than two of the 36 profiles. How many sound rules without a dictator are there now?
# * In `groups.remedies`, replace the mean less *one* spread by the mean less `c` spreads. How much does each group get as `c` grows, and at what KL?
#
# The graded exercises of this chapter: `minirlhf check 06`.
