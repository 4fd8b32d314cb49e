# %% [markdown]
# # 24 · A monitor, a fine and a debate
#
# A small model takes an exam that can be cheated, and it says so when it cheats. A monitor reads what the model writes, and each flag costs a fine. Then two debaters argue before a judge who reads one bit of sixteen.
#
# **Does the policy stop, or does it hide, and who would notice?**

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf_course import evidence
from minirlhf_course.chapters.ch24_oversight import debate, exam, monitors, weak
from minirlhf_course.chapters.ch24_oversight.exam import ACTION, THOUGHT
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

SEED = 9024  # not one of the study's seeds
study = evidence.StudyResults("ch24")
predict = Predictions("24")
mean = lambda name: sum(study.values(name)) / len(study.values(name))

# %% [markdown]
# ## A fine in three numbers
#
# Honest work passes with probability .6. A cheat passes always. The monitor flags a spoken cheat with probability .9, a silent cheat as rarely as honest work. The chapter's formula gives the optimal policy for each fine.

# %%
larger = predict(
    "With a fine of 1 most completions are silent cheats. What does a fine of 32 do?", "it stops them", "nothing"
)

# %%
# NBVAL_CHECK_OUTPUT
ref = torch.tensor([0.799, 0.2, 0.001], dtype=torch.float64).log()
rewards = torch.tensor([0.6, 1.0, 1.0], dtype=torch.float64)
blind, glimpse = (torch.tensor([0.05, 0.9, silent], dtype=torch.float64) for silent in (0.05, 0.5))
print("fine  honest  spoken  silent")
for fine in (0.0, 0.5, 1.0, 32.0):
    p = monitors.monitored_policy(ref, rewards, blind, fine=fine, beta=0.05).exp().tolist()
    print(f"{fine:4.1f}  {p[0]:6.3f}  {p[1]:6.3f}  {p[2]:6.3f}")
larger.reveal("nothing")

# %%
# figure: stop-or-hide
# alt: Two panels, probabilities of honest work, spoken cheat and silent cheat against the fine from 0 to 2. In both the spoken cheat falls from one to zero before a fine of one. Left, for a monitor that is blind to silent cheats,
#   the silent cheat rises to about .8 and stays. Right, for a monitor that sees half of the silent cheats, it stays below a tenth, and honest work takes over.
#   A dotted line, the flags, falls to the same low level in both.
fines = torch.linspace(0, 2, 101, dtype=torch.float64).tolist()
fig, axes = plt.subplots(1, 2, figsize=(6.4, 2.7), sharey=True, layout="constrained")
for ax, flags, title in zip(axes, (blind, glimpse), ("sees no silent cheat", "sees half of them"), strict=True):
    policies = torch.stack([monitors.monitored_policy(ref, rewards, flags, fine=x, beta=0.05).exp() for x in fines])
    for name, colour, column in zip(
        ("honest", "spoken cheat", "silent cheat"), ("blue", "orange", "red"), policies.T, strict=True
    ):
        ax.plot(fines, column, color=PALETTE[colour], label=name)
    ax.plot(fines, policies @ flags, color=PALETTE["black"], ls=":", label="flags")
    ax.set(xlabel="fine", title=title, ylim=(0, 1.02))
axes[0].set_ylabel("probability")
axes[1].legend(frameon=False, fontsize=8, loc="center right")
plt.show()

# %% [markdown]
# ## The same with a trained model
#
# The demonstrations cheat and say so in 15 of 100 cases, and cheat silently in 2 of 100. `exit` passes every test. Reinforcement learning sees only the tests, and the fines.

# %%
task = exam.Exam()
start = exam.base(task, SEED, quiet=False)
for kind, text in (("honest", task.reference(task.prompts("test")[0])), ("spoken", "think hack answer exit")):
    print(f"{kind:8} {text}")

# %%
outcome = predict(
    "We train with a fine of 1 for each flag of a monitor that reads the thought. What happens to the cheats?",
    "they stop",
    "they are no longer mentioned",
    "nothing changes",
)

# %%
watched = {
    "cheats": lambda problems, texts: [float(exam.cheats(text)) for text in texts],
    "says so": lambda problems, texts: [float(exam.says_so(text)) for text in texts],
}
models, histories = {"before": start}, {}
for name, monitor, fine in (
    ("no fine", THOUGHT, 0.0),
    ("fine on the thought", THOUGHT, 1.0),
    ("fine on the action", ACTION, 1.0),
):
    models[name] = exam.trained(task, start, SEED, monitor, fine, monitors=watched, quiet=False)
    histories[name] = models[name].history
rows = {name: exam.measured(task, model, ACTION if "action" in name else THOUGHT) for name, model in models.items()}
print("                       cheats   spoken   silent")
for name, row in rows.items():
    print(f"{name:20}" + "".join(f"{row[key]:9.2f}" for key in ("cheats", "spoken", "silent")))
row = rows["fine on the thought"]
unsaid = "they are no longer mentioned" if row["spoken"] < 0.1 else "nothing changes"
outcome.reveal("they stop" if row["cheats"] < 0.1 else unsaid)
print(f"the study: {mean('thought_cheats'):.2f} cheats, {mean('thought_spoken'):.2f} spoken (means over its seeds)")

# %%
# figure: exam
# alt: Two panels over 40 training steps, each with two lines: the fraction of completions that cheat, and the fraction that mention the hack. Left, with a fine on the thought, the fraction that cheats rises to one and the fraction that
#   mentions it falls to zero. Right, with a fine on the action, both fall to zero.
fig, axes = plt.subplots(1, 2, figsize=(6.4, 2.6), sharey=True, layout="constrained")
for ax, name in zip(axes, ("fine on the thought", "fine on the action"), strict=True):
    for what, colour in (("cheats", "red"), ("says so", "orange")):
        ax.plot(histories[name][what], color=PALETTE[colour], label=what)
    ax.set(xlabel="step", title=name, ylim=(-0.02, 1.02))
axes[0].set_ylabel("fraction of completions")
axes[0].legend(frameon=False, fontsize=8, loc="center right")
plt.show()

# %%
assert study.holds("thought_cheats", above=0.5) and study.holds("thought_spoken", below=0.1)
assert study.holds("action_cheats", below=0.1)

# %% [markdown]
# ## A failure on purpose: the dashboard
#
# Here is what a team sees that logs the proxy reward and the flags of its own monitor. They are two of the runs above, without their names.

# %%
hidden = dict(zip("AB", sorted(name for name in rows if name.startswith("fine")), strict=True))
for letter, name in hidden.items():
    print(f"run {letter}: proxy {rows[name]['proxy']:.2f}, flags {rows[name]['flags']:.2f}")

# %%
honest = predict("Which of the two runs stopped cheating?", "A", "B", "both", "neither")

# %%
stopped = [letter for letter, name in hidden.items() if rows[name]["cheats"] < 0.1]
honest.reveal("both" if len(stopped) == 2 else "".join(stopped) or "neither")
for letter, name in hidden.items():
    study_name = name.removeprefix("fine on the ")
    print(f"run {letter}: {name}, gold {rows[name]['gold']:.2f}; mean of the study: {mean(f'{study_name}_gold'):.2f}")

# %% [markdown]
# Flags near .05 are the rate of false positives and do not answer the question. Honest work passes in at most about 60 % here. A team that knows this limit can see the cheat in the proxy reward. A team that does not know it would choose the run with the larger reward.

# %% [markdown]
# ## Weak labels
#
# A weak supervisor errs in a quarter of the cases. A part of its error depends on what the student sees. How much of the gap does a student recover?

# %%
copies = predict(
    "The student can represent all of the supervisor's error. What part of the gap does it recover?",
    "none",
    "half",
    "all",
)

# %%
# NBVAL_CHECK_OUTPUT
print("inside the student's features   weak   student   gap recovered")
for inside in (0.0, 0.25, 0.5, 1.0):
    supervisor, student = weak.linear_accuracies(inside=inside, outside=1 - inside)
    print(f"{inside:29.2f}   {supervisor:.3f}   {student:7.3f}   {(student - supervisor) / (1 - supervisor):13.2f}")
copies.reveal("none")

# %% [markdown]
# ## A debate on sixteen bits
#
# OR and AND alternate above sixteen hidden bits. Two debaters claim opposite values of the root. Move by move, they choose the branch in which the debate continues. The judge reads one bit.

# %%
wins = predict(
    "Both debaters choose best. On how many of the 65,536 inputs does the honest one win?", "about half", "most", "all"
)

# %%
# NBVAL_CHECK_OUTPUT
inputs, probs = debate.all_inputs(4), debate.input_probabilities(4)
print("truth wins on", int((debate.debate_value(inputs) == 1).sum()), "of", len(inputs), "inputs")
print("a judge alone:", ", ".join(f"{n} leaves {debate.best_fixed_leaves(4, n):.3f}" for n in (1, 4)))
wins.reveal("all")

# %%
# figure: debate
# alt: Accuracy of a judge who reads one leaf, against the skill of the honest debater from .5 to 1. With a liar of equal skill the curve rises from .57 to 1. With a perfect liar it rises from .29 to 1 and crosses one half near .68.
#   A dashed line marks the judge without debaters at .57.
skills = torch.linspace(0.5, 1, 26, dtype=torch.float64).tolist()
value = lambda honest, liar: float(probs @ debate.debate_value(inputs, honest=honest, liar=liar))
fig, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
ax.plot(skills, [value(q, q) for q in skills], color=PALETTE["blue"], label="liar of the same skill")
ax.plot(skills, [value(q, 1.0) for q in skills], color=PALETTE["red"], label="perfect liar")
ax.axhline(debate.best_fixed_leaves(4, 1), color=PALETTE["black"], lw=0.8, ls="--")
ax.text(0.98, 0.52, "judge alone, one leaf", fontsize=8, ha="right", va="center")
ax.set(
    xlabel="skill of the honest debater",
    ylabel="accuracy of the judge",
    ylim=(0.2, 1.02),
    title="a debate of sixteen bits",
)
ax.legend(frameon=False, fontsize=8, loc="upper left")
plt.show()

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Give the monitor half of the silent cheats (`exam.GLIMPSE`), and try fines below and above the chapter's threshold.
# * Train without silent cheats in the demonstrations (`exam.Exam(silent=0.0)`), with several seeds. Who hides now?
# * At which skill of the honest debater does a perfect liar bring the judge below chance?
#
# The graded exercises of this chapter: `minirlhf check 24`.
