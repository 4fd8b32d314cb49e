"""The runs of chapter 03 with five seeds: ``python -m minirlhf_course.chapters.ch03_markov_decision_processes.study`` (about three minutes).

Prediction on the random walk, Sarsa and Q-learning at the cliff, Dyna-Q in the maze, five strategies on five arms, DQN and Double
DQN in the hall of doors, and a time limit that is treated as an end. Each seed has many learners. Writes
``study.json``.
"""

from minirlhf.control import dqn
from minirlhf_course.chapters.ch03_markov_decision_processes import runs
from minirlhf_course.evidence import Study


def one_seed(seed: int) -> dict[str, float]:
    """Every run of the chapter with one seed."""
    numbers: dict[str, float] = {}
    for name, n, alpha in (("td", 1, 0.05), ("td4", 4, 0.05), ("mc", None, 0.05)):
        error = runs.prediction_error(n, alpha, seed).mean(1)
        numbers[f"{name}_error_20"], numbers[f"{name}_error_100"] = float(error[20]), float(error[100])
    for name, wrong in (("right", False), ("wrong", True)):
        values = runs.cut_off_values(wrong, seed).mean(0)
        numbers[f"limit_{name}_first"], numbers[f"limit_{name}_last"] = float(values[0]), float(values[-1])
    for name, off_policy in (("sarsa", False), ("q", True)):
        numbers[f"{name}_late_return"] = float(runs.cliff(off_policy, seed).returns[:, -40:].mean())
    for steps in (0, 5, 20):
        lengths = runs.maze(steps, seed).lengths.double()
        numbers[f"dyna_{steps}_length_5_10"] = float(lengths[:, 5:10].mean())
        numbers[f"dyna_{steps}_total"] = float(lengths.sum(1).mean())
    for name, strategy in runs.STRATEGIES.items():
        lost = runs.bandit_regret(strategy, seed)
        numbers[f"regret {name}"] = float(lost[:, -1].mean())
        if name == "greedy":
            numbers["greedy_median"] = float(lost[:, -1].median())
            numbers["greedy_worse_arm"] = float((lost[:, -1] > lost[:, -101]).double().mean())  # in the last 100 pulls
    for name, target in (("dqn", dqn.dqn), ("double", dqn.double_dqn)):
        numbers[f"{name}_belief"] = float(runs.doors(target, seed).mean())
    return numbers


def probe() -> dict[str, float]:
    """A few episodes of every run."""
    numbers: dict[str, float] = {}
    for name, n in (("td", 1), ("td4", 4), ("mc", None)):
        numbers[f"{name}_error"] = float(runs.prediction_error(n, 0.05, 0, episodes=5, learners=10)[-1].mean())
    for name, wrong in (("right", False), ("wrong", True)):
        numbers[f"limit_{name}"] = float(runs.cut_off_values(wrong, 0, episodes=60).mean())
    for name, off_policy in (("sarsa", False), ("q", True)):
        numbers[f"{name}_return"] = float(runs.cliff(off_policy, 0, episodes=5).returns.mean())
    for steps in (0, 5):
        numbers[f"dyna_{steps}_length"] = float(runs.maze(steps, 0, episodes=3).lengths.double().mean())
    for name, strategy in runs.STRATEGIES.items():
        numbers[f"regret {name}"] = float(runs.bandit_regret(strategy, 0, steps=50, players=20)[:, -1].mean())
    for name, target in (("dqn", dqn.dqn), ("double", dqn.double_dqn)):
        numbers[f"{name}_belief"] = float(runs.doors(target, 0, runs=1, updates=60).mean())
    return numbers


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
