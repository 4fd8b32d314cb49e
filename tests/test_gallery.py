"""The failure gallery and the doctor: one line breaks each run, its metrics show it, and healthy runs are not accused."""

import builtins
import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation
from minirlhf.data.formats import Problem
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import RECIPES
from minirlhf.recipes.parts import ProcessSupervision
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_cli import dispatch
from minirlhf_cli.commands import gallery as command
from minirlhf_course import evidence
from minirlhf_course.gallery import given, online, pictures, questions
from minirlhf_course.gallery.catalogue import gallery
from minirlhf_course.gallery.colours import (
    BASE,
    END,
    PAD,
    PLEASE,
    Setup,
    gold,
    polite,
    reads_all,
    reference,
    written,
)
from minirlhf_course.report.diagnosis import RULES, diagnose
from minirlhf_course.report.metrics import METRICS

EVERY = gallery()


def fields(run):
    """All that a run is made of, one level down."""
    found = {}
    for field in dataclasses.fields(run):
        value = getattr(run, field.name)
        if dataclasses.is_dataclass(value) and field.name == "config":
            found |= {f"config.{inner.name}": getattr(value, inner.name) for inner in dataclasses.fields(value)}
        else:
            found[field.name] = value
    return found


def made_up(**columns):
    """A history of these curves."""
    size = max(map(len, columns.values()))
    return History(rows=[{"step": i, **{name: column[i] for name, column in columns.items()}} for i in range(size)])


def line(start, end, size=40, wobble=0.0):
    return [start + (end - start) * i / (size - 1) + wobble * (-1) ** i for i in range(size)]


@pytest.mark.parametrize("failure", EVERY.values(), ids=EVERY)
def test_gallery_failure_changes_one_thing(failure):
    before, after = fields(failure.healthy), fields(failure.broken)
    changed = [name for name in before if before[name] != after[name]]
    assert len(changed) == 1
    if changed == ["recipe"]:
        told = [r.splitlines() for r in (repr(failure.healthy.recipe), repr(failure.broken.recipe))]
        assert told[0] != told[1]
    assert failure.change[0] in failure.line


#: These the study's doctor names in at least four of five seeds; of the others it is chance which run he names.
NAMED = [n for n in EVERY if EVERY[n].findings and sum(evidence.values(pictures.result(), f"named_{n}")) >= 4]


#: Each of the first two runs for longer than a few seconds. Each of the others has a failure before it of the same kind of run, which the
#: same rule names first.
RARELY = {"many_updates", "no_clip", "constant_grader", "limit_short", "rewards_in_hundreds", "longer_wins"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.release] * (n in RARELY)) for n in NAMED])
def test_diagnose_names_every_gallery_failure(name):
    """On one of three seeds: another processor rounds otherwise, and a run near a threshold falls on its other side."""
    failure = EVERY[name]
    for seed in range(3):
        history = failure.run(seed)
        assert set(failure.panel) <= {name for row in history.rows for name in row}
        if {finding.name for finding in diagnose(history)} & set(failure.findings):
            return
    pytest.fail(f"none of {failure.findings} on three seeds")


HEALTHY = {
    "online": BASE,
    "sft": given.IMITATION,
    "dpo": given.PAIRS,
    "ipo": given.PAIRS.with_(loss="ipo"),
    "ppo": online.WITH_CRITIC,
    "ppo, one reply per prompt": online.WITH_CRITIC.with_(batch_size=72, num_generations=1),
    "a small rate": BASE.with_(learning_rate=1e-4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_diagnose_accuses_no_healthy_run(name):
    assert diagnose(HEALTHY[name].run(0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_diagnose_accuses_no_sft_of_trained_model(seed):
    """Its loss hardly falls, and small batches let it go up and down."""
    settings = SFTConfig(max_steps=60, batch_size=4, learning_rate=1e-3, seed=seed)
    history = train_sft(reference(), written(1200, 50 + seed), settings, pad_token_id=PAD, quiet=True)
    assert diagnose(history) == []


def test_diagnosis_rules_are_shown_by_gallery_failures():
    shown = {name for failure in EVERY.values() for name in failure.findings}
    unshown = {"not_a_number", "kl_runs_away", "unknown_words", "one_reward", "one_completion"}
    assert {rule.name for rule in RULES} - shown == unshown - shown
    assert shown <= {rule.name for rule in RULES}


def test_diagnosis_rules_need_known_metrics():
    held_out = {f"held_out_{name}" for name in METRICS}
    assert {name for rule in RULES for name in rule.needs} <= METRICS.keys() | held_out


ONLINE = {"reward": line(0.2, 0.8, wobble=0.02), "reward_std": line(0.4, 0.4), "frac_reward_zero_std": line(0.1, 0.3)}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("not_a_number", {"loss": [1.0] * 9 + [math.inf]}),
        ("never_ends", {"frac_terminated": [0.0] * 20}),
        ("grader_fails", {"frac_invalid": [0.1] * 20}),
        ("unknown_words", {"frac_unknown": [0.6]}),
        ("one_reward", {"reward": [0.0] * 3, "reward_std": [0.0] * 3}),
        ("one_completion", {"frac_most_common": line(0.1, 1.0), "completion_length": line(8, 1)}),
        ("start_disagrees", {"kl": line(0.2, 0.5)}),
        ("reference_moves", {"kl": [0.0] * 20, "neg_logp": line(2.0, 0.5, 20)}),
        ("no_signal", {"frac_reward_zero_std": [0.9] * 20, "reward_std": [0.1] * 20}),
        ("steps_too_large", {"approx_kl": [0.5] * 20}),
        ("stale_data", {"clip_fraction": [0.4] * 20, "policy_log_ratio_max": [2.0] * 20}),
        ("gold_falls", {**ONLINE, "truth": line(0.5, 0.1, wobble=0.01)}),
        ("gold_falls", {**ONLINE, "held_out_cost_harm": line(0.1, 0.5, wobble=0.01)}),
        ("monitor_evaded", {"cost_flags": line(0.4, 0.05, wobble=0.01), "cost_cheats": line(0.3, 0.9, wobble=0.01)}),
        ("length_runs_away", {"completion_length": line(10, 30), "frac_terminated": line(1.0, 0.1)}),
        ("kl_runs_away", {**ONLINE, "reward": [0.3, 0.31] * 20, "kl": line(0, 20)}),
        ("reward_falls", {**ONLINE, "reward": line(0.8, 0.2, wobble=0.02)}),
        ("steps_too_small", {**ONLINE, "reward": [0.3, 0.33] * 20, "approx_kl": [1e-7] * 40}),
        ("held_back", {**ONLINE, "reward": [0.3, 0.33] * 20, "kl": [0.0] + [0.001] * 39, "approx_kl": [2e-4] * 40}),
        ("noise_rises", {"neg_logp": line(1.0, 2.0, wobble=0.02)}),
        ("moves_without_reward", {**ONLINE, "reward": [0.3, 0.33] * 20, "kl": line(0, 1)}),
        ("no_baseline", {**ONLINE, "reward": [3.0, 3.1] * 20, "loss": [-3.0, -3.1] * 20}),
        ("certain_before_right", {"frac_reward_zero_std": line(0.2, 1.0), "reward_std": [0.4] * 40, "neg_logp": line(1.4, 0.0)}),
        ("critic_useless", {**ONLINE, "explained_variance": [0.0] * 40, "value": [-3.0] * 40}),
        ("critic_clipped", {"critic_grad_norm": [50.0] * 20}),
        ("loss_jumps", {"loss": [2.0, 3.0, 2.5, *line(2.0, 1.5, 37)]}),
        ("memorises", {"loss": line(2.0, 0.5), "held_out_loss": [2.0, 1.5, *line(1.5, 3.0, 38)]}),
        ("labels_swapped", {"accuracy": line(0.5, 0.9), "held_out_accuracy": line(0.5, 0.1)}),
        ("coin_toss", {"loss": [0.693] * 20, "margin": [0.01, -0.01] * 10}),
        ("pushes_apart", {"margin": line(0, 9), "rejected_logp": line(-20, -120), "chosen_reward": line(0, -2)}),
    ],
)  # fmt: skip
def test_diagnose_made_up_curve_finds_rule_with_numbers(name, columns):
    found = {finding.name: finding for finding in diagnose(made_up(**columns))}
    assert name in found
    assert any(c.isdigit() for c in found[name].evidence) or name == "not_a_number"


HEALTHY_BUT_RESTLESS = {
    "a third more right answers": {**ONLINE, "reward": line(0.40, 0.58, wobble=0.02), "kl": line(0, 1)},
    "batches of unlike text": {"loss": [2.3 + 0.1 * math.sin(2.4 * i**1.1) - 0.004 * i for i in range(80)]},
    "more varied, and more often right": {**ONLINE, "reward": line(0.2, 0.9, wobble=0.02), "neg_logp": line(1.0, 2.0, wobble=0.02)},
    "one reply per prompt": {**ONLINE, "frac_reward_zero_std": [1.0] * 40, "kl": line(0, 1)},
    "rounding in bfloat16, 400 tokens": {**ONLINE, "kl": line(0.05, 1.0), "completion_length": [400.0] * 40},
    "a small beta": {"loss": line(0.693, 0.685), "margin": line(0.0, 0.01), "accuracy": line(0.5, 0.9)},
    "a critic, and hard prompts": {**ONLINE, "frac_reward_zero_std": [0.8] * 40, "explained_variance": line(0.1, 0.5), "value": line(0.2, 0.8)},
    "yes and no": {**ONLINE, "frac_most_common": line(0.1, 0.6)},
    "a watched metric that is missing in some rows": {"loss": line(2, 1), "neg_logp": [math.nan, *line(1.2, 0.7, 39)]},
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY_BUT_RESTLESS)
def test_diagnose_accuses_no_restless_run(name):
    assert diagnose(made_up(**HEALTHY_BUT_RESTLESS[name])) == []


@pytest.mark.parametrize(("paid", "length"), [("", 1), ("red", 2)])
def test_diagnose_finds_run_that_ends_in_one_completion(paid, length):
    """The reward pays one text, also the empty one, whatever the prompt."""
    words = word_tokenizer(["red", "blue", "green"])
    problems = [Problem(conversation(text)) for text in ("red", "blue", "green", "red blue")]
    config = OnlineConfig(max_steps=40, batch_size=4, num_generations=8, max_completion_length=3, learning_rate=3e-3)

    def pays(_, completions):
        return [float(text.strip() == paid) for text in completions]

    history = train_online(
        tiny_model("nano", words), problems, pays, RECIPES["dr_grpo"], config, tokenizer=words, quiet=True
    )
    assert history["frac_most_common"][0] < 0.7 and history["completion_length"][-1] == pytest.approx(length, abs=0.3)
    assert "one_completion" in names(history)


def test_diagnose_accuses_no_run_of_a_single_prompt():
    words = word_tokenizer(["red", "blue", "green"])
    config = OnlineConfig(max_steps=12, batch_size=4, num_generations=4, max_completion_length=2, learning_rate=1e-2)
    history = train_online(
        tiny_model("nano", words), [Problem(conversation("red"))], lambda _, texts: [float(t == "red") for t in texts],
        RECIPES["dr_grpo"], config, tokenizer=words, quiet=True,
    )  # fmt: skip
    assert all("frac_most_common" not in row for row in history)


def title_of(name):
    """The title by which the doctor prints this rule."""
    [title] = {rule.title for rule in RULES if rule.name == name}
    return title


def names(history, **known):
    return [finding.name for finding in diagnose(history, **known)]


@pytest.mark.parametrize(
    ("cheats", "accused"),
    [
        (line(0.9, 1.0, wobble=0.02), True),
        ([0.9, 0.92] * 20, True),  # it hides from the first step on
        (line(0.05, 0.3, wobble=0.02), True),
        (line(0.9, 0.02, wobble=0.02), False),
        ([0.05, 0.06] * 20, False),  # false positives of a monitor that never had anything to see
        ([0.3, 0.31] * 20, False),  # rarer than what the first monitor saw: perhaps another fault
        (line(0.9, 0.6, wobble=0.02), False),
    ],
)
def test_diagnose_monitor_evaded_needs_cost_that_does_not_follow(cheats, accused):
    flags = line(0.8, 0.05, wobble=0.02)
    assert ("monitor_evaded" in names(made_up(cost_flags=flags, cost_cheats=cheats))) == accused
    assert names(made_up(cost_flags=flags)) == []
    assert names(made_up(cost_flags=line(0.8, 0.6, wobble=0.02), cost_cheats=cheats)) == []  # most is still seen


def test_diagnose_monitor_evaded_is_better_explanation_than_gold_falls():
    costs = {"cost_flags": line(0.8, 0.05, wobble=0.02), "cost_cheats": line(0.3, 0.9, wobble=0.02)}
    assert names(made_up(**ONLINE, **costs)) == ["monitor_evaded"]


def test_diagnose_gold_falls_reads_direction_from_name():
    """A cost that falls is good, and a part of the reward may fall for another one."""
    down, up = line(0.5, 0.1, wobble=0.01), line(0.1, 0.5, wobble=0.01)
    for name, column, accused in (
        ("truth", down, True), ("truth", up, False), ("cost_harm", down, False), ("cost_harm", up, True),
        ("rewards/brevity", down, False), ("held_out_cost_harm", down, False),
    ):  # fmt: skip
        assert ("gold_falls" in names(made_up(**ONLINE, **{name: column}))) == accused, name


def test_diagnose_no_signal_spares_groups_of_one():
    history = made_up(**{**ONLINE, "reward": [0.3, 0.33] * 20, "frac_reward_zero_std": [1.0] * 40})
    assert names(history) == ["no_signal"]
    assert names(history, alone=True) == []


def test_diagnose_tells_small_steps_from_held_back():
    """Steps that add up to no more than where the policy is are not taken back by anything."""
    flat = {**ONLINE, "reward": [0.3, 0.33] * 20, "kl": [0.0] + [0.001] * 39}
    assert names(made_up(**flat, approx_kl=[2e-5] * 40)) == ["steps_too_small"]
    assert names(made_up(**flat, approx_kl=[2e-4] * 40)) == ["held_back"]
    moved = {**flat, "kl": line(0.0, 0.15)}
    assert names(made_up(**moved, approx_kl=[1e-14] * 40)) == []  # one update per rollout: approx_kl is rounding error


def test_diagnose_start_disagrees_needs_first_step():
    rows = made_up(kl=line(0.2, 0.5)).rows
    assert names(History(rows=rows)) == ["start_disagrees"]
    assert names(History(rows=[{**row, "step": row["step"] + 100} for row in rows])) == []


def test_diagnose_tells_small_steps_from_coin_toss():
    toss = {"loss": [0.693] * 40, "margin": [1e-4] * 40}
    assert names(made_up(**toss, chosen_reward=[1e-4] * 40, accuracy=[0.8] * 40)) == ["steps_too_small"]
    assert names(made_up(**toss, accuracy=[0.5] * 40)) == ["coin_toss"]


def test_diagnose_dpo_small_beta_is_no_small_step():
    """At a beta of .001 a margin of .0025 is two and a half nats: the log-probabilities tell."""
    learned = {
        "loss": line(0.6931, 0.6919),
        "accuracy": line(0.5, 0.87),
        "margin": line(0.0, 0.0025),
        "chosen_reward": line(0.0, 5e-4),
    }
    still = {"chosen_logp": [-2.8, -3.1] * 20, "rejected_logp": [-3.9, -4.4] * 20}
    assert names(made_up(**learned, **still)) == ["steps_too_small"]
    assert names(made_up(**learned, **still | {"rejected_logp": line(-4, -6, wobble=0.5)})) == []
    assert names(made_up(**learned, **still | {"chosen_logp": line(-3, -2, wobble=0.2)})) == []


@pytest.mark.slow
def test_diagnose_accuses_no_short_dpo_with_small_beta():
    assert diagnose(given.PAIRS.with_(beta=0.001, max_steps=30).run(0)) == []


def test_diagnose_sft_small_steps_by_held_out_loss():
    """The training loss goes up and down with its batches."""
    batches = {"loss": [2.31, 2.33, 2.30] * 13 + [2.32]}
    assert names(made_up(**batches, held_out_loss=line(2.2942, 2.2939))) == ["steps_too_small"]
    assert names(made_up(**batches, held_out_loss=line(2.294, 2.284))) == []
    late = History(
        rows=[{**row, "step": row["step"] + 100} for row in made_up(**batches, held_out_loss=[1.42] * 40).rows]
    )
    assert names(late) == []  # the end of a run whose steps have become small says nothing of the whole


def test_diagnose_tells_never_ends_from_memorises():
    """A blank model says the end now and then, until it learns that nobody does."""
    loss = {"loss": line(2.0, 1.3), "held_out_loss": [2.0, 1.5, *line(1.5, 3.9, 38)]}
    assert names(made_up(**loss, frac_terminated=[0.052] + [0.0] * 39)) == ["never_ends"]
    assert names(made_up(**loss, frac_terminated=[0.9] * 40)) == ["memorises"]


@pytest.mark.parametrize("before", [0.9, 0.3, 0.12])
def test_diagnose_never_ends_of_model_that_ended_before(before):
    """The end masked out while a model is fine-tuned that has it: the training loss falls at once, and no further."""
    loss = {"loss": [1.43, 1.36, *[1.33, 1.34] * 19], "held_out_loss": [2.45, *line(2.5, 3.9, 39)]}
    ended = [before, *line(before, 0.0, 9), *[0.0] * 30]
    assert names(made_up(**loss)) == []
    assert names(made_up(**loss, frac_terminated=ended)) == ["never_ends"]
    # Where length pays, another rule speaks, if the length is logged.
    assert names(made_up(**ONLINE, frac_terminated=ended)) == []


def test_diagnose_memorises_by_two_losses_alone():
    """TRL logs no frac_terminated. Where the other loss turns at once, the fall of any first rows is no memory; one that goes on is."""
    held = [2.45, *line(2.5, 3.9, 39)]
    assert names(made_up(loss=[3.4, 2.2, 1.6, 1.4, *[1.33, 1.34] * 18], held_out_loss=held)) == []
    assert names(made_up(loss=line(3.4, 0.5), held_out_loss=held)) == ["memorises"]
    rising = [1.7, 1.9, 2.1, *line(2.3, 3.7, 37)]  # learned within the first tenth, and no further
    for at_once in ([2.5, 1.0, 0.2, 0.03, *[0.01] * 36], [2.5, 1.5, 0.9, 0.62, *[0.58, 0.57] * 18]):
        assert names(made_up(loss=at_once, held_out_loss=rising)) == ["memorises"]
    seeds = evidence.read(evidence.results()["gallery"])["seeds"].values()
    for name, accused in (("no_end", []), ("memorised", ["memorises"])):
        for numbers in seeds:
            losses = {m: [numbers[f"broken_{name}_{m}_{i:02d}"] for i in range(12)] for m in ("loss", "held_out_loss")}
            assert names(made_up(**losses)) == accused, name


def test_diagnose_tells_noisy_labels_from_coin_toss():
    """Three of five agree: the best loss there is is .673, the best accuracy .6."""
    noisy = {"loss": line(0.692, 0.682), "accuracy": line(0.50, 0.59)}
    assert names(made_up(**noisy, margin=line(0.0, 0.05))) == []
    assert names(made_up(**noisy, margin=[0.01, -0.01] * 20)) == ["coin_toss"]


def test_diagnose_tells_random_labels_from_swapped():
    """Few of them: training accuracy rises to .95, and held-out accuracy is a coin's. Many: it stays at a half, wherever the other lies by chance.
    Where the longer reply was chosen, it comes to .7, and less than a half is right on pairs kept apart."""
    for learned, held, accused in ((0.95, 0.53, False), (0.95, 0.46, False), (0.95, 0.36, True), (0.95, 0.1, True), (0.7, 0.35, True), (0.52, 0.30, False)):  # fmt: skip
        run = made_up(
            loss=line(0.69, 0.2), margin=line(0, 3), accuracy=line(0.5, learned), held_out_accuracy=[held] * 40
        )
        assert ("labels_swapped" in names(run)) == accused


def test_diagnose_kl_runs_away_of_resumed_run():
    for kl, accused in (
        ([5.0] * 40, False),
        (line(0.5, 40), True),
        (line(0, 40), True),
        ([40.0, *line(0, 29, 39)], True),
    ):
        rows = made_up(**{**ONLINE, "reward": [0.3, 0.31] * 20, "kl": kl}).rows
        late = History(rows=[{**row, "step": 10 * row["step"] + 100} for row in rows])
        assert ("kl_runs_away" in names(late)) == accused


def test_diagnose_critic_clipped_uses_max_grad_norm_of_run():
    history = made_up(critic_grad_norm=[30.0] * 20)
    assert names(history) == ["critic_clipped"] and names(history, max_grad_norm=100.0) == []
    evidences = [diagnose(history, **known)[0].evidence for known in ({}, {"max_grad_norm": 1.0})]
    assert ["max_grad_norm" in text for text in evidences] == [True, False]


@pytest.mark.slow
def test_doctor_reads_num_generations_from_run(tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--max-steps", "6", "--num-generations", "1", "--batch-size", "8", "--out", str(out)]
    assert dispatch(["train", "reinforce", "--task", "shell_game", "--model", "nano", *flags]) == 0
    rows = History.read(out)
    assert set(rows["frac_reward_zero_std"]) == {1.0}
    capsys.readouterr()
    dispatch(["doctor", str(out)])
    assert title_of("no_signal") not in capsys.readouterr().out


@pytest.mark.parametrize("metric", ["loss", "grad_norm"])
def test_diagnose_finds_nan_loss_and_grad_norm(metric):
    columns = {"loss": line(2, 1), "grad_norm": line(2, 1)}
    columns[metric] = [1.0] * 7 + [math.nan] * 33
    assert [finding.name for finding in diagnose(made_up(**columns))] == ["not_a_number"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["simpo", "orpo"])
def test_doctor_reads_reference_free_loss_from_run(loss, tmp_path, capsys):
    pairs = str(Path(__file__).parent / "samples" / "preference.jsonl")
    given = ["--data", pairs, "--model", "nano", "--max-steps", "6", "--out", str(tmp_path / "run")]
    assert dispatch(["train", loss, *given]) == 0
    capsys.readouterr()
    dispatch(["doctor", str(tmp_path / "run")])
    assert title_of("start_disagrees") not in capsys.readouterr().out
    rows = History.read(tmp_path / "run")
    assert abs(rows["chosen_reward"][0]) > 1e-3  # the rule would speak, did it not know the loss
    assert "start_disagrees" in {finding.name for finding in diagnose(rows)}


def test_diagnose_skips_short_run():
    assert diagnose(made_up(frac_terminated=[0.0] * 4)) == []


def test_gallery_colours_gold_and_polite_rewards():
    assert gold(0, [1, END]) == gold(0, [PLEASE, 1, END]) == 1
    assert gold(0, [2, END]) == gold(0, [1, 2, END]) == gold(0, [1, PLEASE, PLEASE, END]) == gold(0, [END]) == 0
    assert polite(0, [PLEASE] * 6) > polite(0, [1, END])  # what is exploited


def test_gallery_monitor_reads_beginning_and_misses_rest():
    beginning, later = [PLEASE, 1, END], [1, PLEASE, PLEASE]
    assert [online.reads_beginning(r) for r in (beginning, later, [PLEASE, END], [1, END])] == [
        True,
        False,
        True,
        False,
    ]
    assert [reads_all(r) for r in (beginning, later)] == [False, True]


@pytest.mark.slow
def test_gallery_costs_are_logged_and_fined():
    """With the monitor's flag as the whole reward, the reward is minus the flags times the fine."""
    none = lambda asked, reply: 0.0
    rows = {}
    for name, run in (("fined", online.MONITORED.with_(grader=none)), ("untrained", online.TWO_QUESTIONS)):
        [rows[name]] = run.with_(max_steps=1).run(0).rows
    assert (
        rows["fined"]["reward"] == pytest.approx(-2.0 * rows["fined"]["cost_flags"]) and rows["fined"]["cost_flags"] > 0
    )
    assert all(0 <= row["cost_blue"] <= 1 for row in rows.values())
    [plain] = BASE.with_(max_steps=1).run(0).rows
    assert not any(name.startswith("cost_") for name in plain)


def test_gallery_setup_with_changes_only_named_options():
    changed = BASE.with_(beta=0.3, learning_rate=0.5, end=PLEASE)
    assert (changed.config.learning_rate, changed.end) == (0.5, PLEASE)
    assert changed.recipe.update.kl.beta == 0.3 and BASE.recipe.update.kl.beta == 0.02
    assert isinstance(changed, Setup) and changed.config.batch_size == BASE.config.batch_size


# -- the commands ------------------------------------------------------------------------------------------------------


def test_gallery_lists_every_failure(capsys):
    assert dispatch(["doctor", "gallery"]) == 0
    assert capsys.readouterr().out.count("\n") == len(EVERY) >= 20


@pytest.mark.slow
def test_gallery_shows_and_writes_runs_that_doctor_reads(capsys, tmp_path):
    assert dispatch(["doctor", "gallery", "sign", "--out", str(tmp_path / "x")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "advantage=turned_round" in told and "return -group_zscore" in told and title_of("reward_falls") in told
    assert dispatch(["doctor", str(tmp_path / "x" / "broken")]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert title_of("reward_falls") in told and re.search(r"\bsign\b", told)
    assert dispatch(["doctor", str(tmp_path / "x" / "healthy" / "metrics.jsonl")]) == 0
    with raises(UserError, argument="--out", problem="exists", file=str(tmp_path / "x")):
        dispatch(["doctor", "gallery", "sign", "--out", str(tmp_path / "x")])


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["doctor", "gallery", "sing"], {"value": "sing", "expected": "sign"}),
        (["doctor", "gallery", "--out", "x"], {"argument": "--out", "expected": "NAME"}),
        (["doctor", "gallery", "sign", "--quiz", "2"], {"argument": "--quiz", "expected": "--seed"}),
        (["doctor", "gallery", "--quiz", "0"], {"argument": "--quiz", "value": 0}),
        (["doctor", "gallery", "--seed", "-1"], {"argument": "--seed", "value": -1, "expected": 0}),
        (["doctor", "no/such/run"], {"problem": "missing"}),
    ],
)
def test_gallery_and_doctor_bad_input_raises_user_error(arguments, facts):
    with raises(UserError, **facts):
        dispatch(arguments)


@pytest.fixture
def remembered(monkeypatch):
    """Runs of the quiz that cost nothing: the first curves that come to hand. What was asked, and whether it was broken."""

    asked = []

    def remember(failure, broken):
        asked.append((failure, broken))
        return made_up(**{name: line(0.1, 0.9) for name in failure.panel})

    monkeypatch.setattr(type(EVERY["sign"]), "run", lambda self, seed: remember(self, True))
    for kind in {type(f.healthy) for f in EVERY.values()}:
        monkeypatch.setattr(
            kind, "run", lambda self, seed: remember(next(f for f in EVERY.values() if f.healthy == self), False)
        )
    return asked


def choices(capsys):
    """Letters and titles of a question."""
    lines = [text for text in capsys.readouterr().out.splitlines() if re.match("  [A-E]  ", text)]
    return {text[5:]: text[2] for text in lines}


def test_gallery_quiz_counts_right_answers(remembered, monkeypatch, capsys):
    truths = []

    def answer(prompt):
        failure, broken = remembered[-1]
        truths.append(failure.title if broken else command.NOTHING)
        return choices(capsys)[truths[-1]]

    monkeypatch.setattr(builtins, "input", answer)
    assert dispatch(["doctor", "gallery", "--quiz", "20"]) == 0
    assert "20 of 20" in capsys.readouterr().out
    assert 0 < truths.count(command.NOTHING) < 10
    monkeypatch.setattr(builtins, "input", lambda prompt: choices(capsys)[command.NOTHING])
    assert dispatch(["doctor", "gallery", "--quiz", "20"]) == 1
    assert f"{truths.count(command.NOTHING)} of 20" in capsys.readouterr().out


def test_gallery_quiz_panels_and_choices_do_not_tell(remembered, monkeypatch, capsys):
    """All runs of one kind show the same metrics; each question has four answers or more, of that kind. Where a run has a critic, both faults of a critic are
    among them, and a healthy critic may be shown; where it has none, none is. The same holds for the costs that only some runs log."""
    panels, kinds = {}, {f.title: type(f.healthy) for f in EVERY.values()}
    critics = {f.title for f in EVERY.values() if f.healthy == online.WITH_CRITIC}
    costs = {f.title for f in EVERY.values() if getattr(f.healthy, "costs", False)}
    monkeypatch.setattr(
        command, "panel", lambda names, *_: panels.setdefault(type(remembered[-1][0].healthy), set()).add(tuple(names))
    )

    def answer(prompt):
        found, failure = choices(capsys), remembered[-1][0]
        assert len(found) >= 4 and command.NOTHING in found
        assert {kinds[title] for title in found if title != command.NOTHING} == {type(failure.healthy)}
        for special in (critics, costs):
            assert len(special & found.keys()) == (2 if failure.title in special else 0)
        return "A"

    monkeypatch.setattr(builtins, "input", answer)
    assert len(critics) == len(costs) == 2
    assert dispatch(["doctor", "gallery", "--quiz", str(len(EVERY))]) in (0, 1)
    assert len(remembered) == len(EVERY) and {len(shown) for shown in panels.values()} == {1}


def test_gallery_quiz_without_keyboard_raises_user_error_and_asks_again_for_letter(remembered, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda prompt: (_ for _ in ()).throw(EOFError))
    with raises(UserError, argument="--quiz", problem="no keyboard"):
        dispatch(["doctor", "gallery", "--quiz", "1"])
    answers = iter(["", "AB", "?", "a"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert dispatch(["doctor", "gallery", "--quiz", "1"]) in (0, 1)
    assert len(capsys.readouterr().err.splitlines()) == 3


# -- questions -----------------------------------------------------------------------------------------------------------


def test_questions_are_complete_and_name_known_rules_and_metrics():
    every = questions.questions()
    assert len(every) >= 30
    assert {name for q in every.values() for name in q.findings} <= {rule.name for rule in RULES}
    assert {name for q in every.values() for name in q.metrics} <= METRICS.keys()
    for question in every.values():
        assert question.question.endswith("?") and len(question.answer.split()) > 40 and question.shows.endswith(".")
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in question.threads)


COMMANDS = sorted({question.command for question in questions.questions().values()})


@pytest.mark.parametrize("line", COMMANDS)
def test_questions_commands_run(line, capsys):
    """Those of the gallery by their names, as the failures are run above."""
    program, *arguments = line.split()
    assert program == "minirlhf"
    if arguments[:2] == ["doctor", "gallery"]:
        assert arguments[2] in EVERY
    else:
        assert dispatch(arguments) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("clip_ratio 0", "clip_ratio_zero"),
        ("0.693", "loss_ln2"),
        ("pad_token eos_token", "never_stops"),
        ("out of memory", "out_of_memory"),
        ("nan loss", "not_a_number"),
        ("grad norm explodes", "not_a_number"),
        ("model repeats itself", "repeats_itself"),
        ("reward collapses to zero", "garbage"),
        ("why does my model never stop talking", "never_stops"),
        ("reward not increasing", "wrong_groups"),
        ("entropy drops", "entropy_falls"),
        ("chosen logps go down", "chosen_falls"),
        ("completions are empty", "shorter"),
        ("dpo loss negative", "negative_loss"),
    ],
)
def test_questions_search_finds_by_common_words(words, name, capsys):
    assert questions.search(words)[0].name == name
    assert dispatch(["doctor", "faq", *words.split()]) == 0
    assert questions.get(name).question in capsys.readouterr().out


def test_ask_lists_all_and_unknown_question_raises_user_error(capsys):
    assert dispatch(["doctor", "faq"]) == 0
    assert capsys.readouterr().out.count("\n") == len(questions.questions())
    with raises(UserError, argument="question", value="zzzz"):
        dispatch(["doctor", "faq", "zzzz"])
    with raises(UserError, value="loss_zer", expected="loss_zero"):
        questions.get("loss_zer")


@pytest.mark.parametrize(
    "words", ["the", "of my model", "best of the pizza", "cuda kernel launch failure", "multi gpu hang"]
)
def test_questions_search_of_other_topics_finds_none(words):
    """Common words fit nothing, and one word that is met by chance does not make an answer."""
    assert questions.search(words) == []


@pytest.mark.slow
def test_questions_search_finds_every_title_and_word():
    for question in questions.questions().values():
        assert questions.search(question.question)[0] == question
        for words in question.words:
            assert question in questions.search(words, count=5), (question.name, words)


def test_doctor_and_metrics_point_to_questions(tmp_path, capsys):
    command.write(made_up(frac_terminated=[0.0] * 20), tmp_path / "run")
    assert dispatch(["doctor", str(tmp_path / "run")]) == 1
    assert "never_stops" in capsys.readouterr().out
    assert dispatch(["doctor", "metrics", "kl"]) == 0
    assert "negative_kl" in capsys.readouterr().out


# -- the page ----------------------------------------------------------------------------------------------------------


def test_gallery_study_has_every_failure():
    seen = pictures.result()
    for numbers in seen["seeds"].values():
        assert {name.removeprefix("named_") for name in numbers if name.startswith("named_")} == EVERY.keys()
    for failure in EVERY.values():
        for kind in ("broken", "healthy"):
            for metric in failure.panel:
                assert all(len(row) >= 5 for row in pictures.kept(seen, kind, failure, metric))


def test_gallery_study_counts_healthy_runs_once():
    settings = {failure.healthy for failure in EVERY.values()}
    online_recipes = [recipe for recipe in RECIPES.values() if not isinstance(recipe.credit, ProcessSupervision)]
    for numbers in pictures.result()["seeds"].values():
        counted = numbers["healthy_runs"] + numbers["stuck_runs"]
        assert counted + numbers["copies"] == len(settings) + len(online_recipes) + 1
        # The limit of six words cuts no right reply; PPO stands among the recipes and beside the critics' failures; no sequence is masked here.
        assert numbers["copies"] >= 3


def test_gallery_cause_of_longer_wins_holds_numbers_of_study():
    told = EVERY["longer_wins"].cause
    for name in ("pairs_right_is_shorter", "pairs_of_equal_length", "unequal_right_is_shorter"):
        shares = [100 * share for share in evidence.values(pictures.result(), name)]
        assert f"{min(shares):.0f} to {max(shares):.0f}" in told


def test_gallery_study_temperature_mismatch_costs_reward():
    for numbers in pictures.result()["seeds"].values():
        assert numbers["both_colder_reward"] >= 0.98 and numbers["both_colder_kl"] < 1e-6
        assert numbers["broken_temperature_reward_11"] < 0.7


def test_gallery_pictures_alt_text_has_numbers():
    seen = json.loads(pictures.RESULT.read_text(encoding="utf-8"))
    text = pictures.alt(EVERY["sign"], seen)
    assert re.search(r"\b0", text) and "reward" in text
