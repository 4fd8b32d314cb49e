"""Students that cannot represent their teacher, and generations of models: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study`` (about four minutes).

Ten seeds. Every distillation method with the same number of tokens, for a student that cannot see the first word; both directions of the KL with
either writer, each at three learning rates; a higher temperature, and more of the teacher's probabilities; collapse of a categorical and of a normal distribution, beside their laws. Writes ``study.json``.
"""

from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import generations
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.sayings import Sayings, WordTable, distil, standing
from minirlhf_course.evidence import Study, settings

FORGETFUL = ("sequence_kd", "kd", "top_k_kd", "gkd", "on_policy_kd", "minillm")
#: The full student: a row and how many of the teacher's sayings it sees again and again; 0: it writes itself.
FULL = {"full_text": ("sequence_kd", 50), "full_logits": ("kd", 50), "full_own": ("on_policy_kd", 0)}
#: Softened distributions, for either student, and more of the teacher's numbers.
HOT = DISTILLATIONS["kd"].with_(temperature=3.0)
MORE = {
    "hot_kd": (HOT, True, 0),
    "full_hot": (HOT, False, 50),
    "top_4_kd": (DISTILLATIONS["top_k_kd"].with_(k=4), True, 0),
}
AT = (1, 10, 20)
#: Both directions of the KL with either writer, and the reverse one with both parts of the gradient.
DIRECTIONS = {
    "given_forward": DISTILLATIONS["kd"],
    "own_forward": DISTILLATIONS["kd"].with_(own_answers=1.0),
    "given_reverse": DISTILLATIONS["on_policy_kd"].with_(own_answers=0.0),
    "own_reverse": DISTILLATIONS["on_policy_kd"],
    "both_parts": DISTILLATIONS["minillm"],
}
RATES = {"slow": 0.02, "middle": 0.05, "fast": 0.15}  # the middle one is that of all other students


def directions(seed: int, steps: int = 400) -> dict[str, float]:
    """Return where the forgetful student ends, by direction, writer and learning rate."""
    world, numbers = Sayings(), {}
    for speed, rate in RATES.items():
        for name, recipe in DIRECTIONS.items():
            student = WordTable(world, forgetful=True, seed=seed)
            distil(student, recipe, seed=seed, steps=steps, lr=rate)
            found = standing(student)
            numbers |= {f"{name}_{speed}_{key}": found[key] for key in ("clean", "favourite", "forward", "reverse")}
    return numbers


def one_seed(seed: int, steps: int = 400, families: int = generations.FAMILIES) -> dict[str, float]:
    """Return the measurements of every student and every family."""
    world, numbers = Sayings(), {}
    students = {name: (DISTILLATIONS[name], True, 0) for name in FORGETFUL}
    students |= {name: (DISTILLATIONS[row], False, known) for name, (row, known) in FULL.items()}
    students |= MORE
    for name, (recipe, forgetful, known) in students.items():
        student = WordTable(world, forgetful=forgetful, seed=seed)
        distil(student, recipe.with_(k=2) if name == "top_k_kd" else recipe, seed=seed, steps=steps, known=known)
        numbers.update({f"{name}_{key}": value for key, value in standing(student).items()})
    whole = float(generations.diversity(generations.truth()))
    for way in generations.WAYS:
        models = generations.families(way, seed=seed, count=families)
        for g in AT:
            numbers[f"{way}_diversity_{g}"] = float(generations.diversity(models[g - 1]).mean()) / whole
            numbers[f"{way}_outcomes_{g}"] = float((models[g - 1] > 0).sum(-1).double().mean())
    last = generations.variances(seed=seed, count=2 * families)[-1]
    numbers |= {"variance_mean": float(last.mean()), "variance_median": float(last.median())}
    return numbers | directions(seed, steps)


def probe() -> dict[str, float | str]:
    """Run four steps of every student, and three families."""
    return one_seed(0, steps=4, families=3) | settings(hot=HOT, **{name: DISTILLATIONS[name] for name in FORGETFUL})


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
