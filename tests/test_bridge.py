"""The bridge: exact rows over whole optimizer steps of TRL, known-wrong maps that the comparison must see, and an export that runs."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from facts import raises
from patience import finished

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.equations.kl import k3
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.recipes.parts import KLInLoss, gfpo_shortest, mask_truncated_completions
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli import dispatch, main
from minirlhf_cli.export import trl
from minirlhf_cli.export.mapped import NoCounterpartError, RunSpec
from minirlhf_cli.export.write import ENGINES

pytest.importorskip("trl")
import bridged

pytestmark = pytest.mark.slow

TWICE = {"num_iterations": 2, "num_minibatches": 1}
#: Rows over two updates on one rollout, so that the ratio of the second one is not 1; without what happens before or outside the step.
ONLINE = {
    "grpo": recipes.GRPO.with_(**TWICE),
    "dr_grpo": recipes.DR_GRPO.with_(**TWICE),
    "dapo": recipes.DAPO.with_(**TWICE, refill=None, shape=()),
    "gspo": recipes.GSPO.with_(**TWICE),
    "luspo": recipes.LUSPO.with_(**TWICE),
    "cispo": recipes.CISPO.with_(**TWICE, epsilon_high=0.05),  # so that it bounds something
    "sapo": recipes.SAPO.with_(**TWICE),
    "lite_ppo": recipes.LITE_PPO.with_(**TWICE),
    "masked_grpo": recipes.MASKED_GRPO.with_(**TWICE, off_policy_mask_threshold=0.01),
    "gspo with a second bound": recipes.GSPO.with_(**TWICE, delta=1.01),
    "cispo of whole replies": recipes.CISPO.with_(**TWICE, epsilon_high=0.05, per_sequence=True),
    "sapo of whole replies": recipes.SAPO.with_(**TWICE, per_sequence=True),
    "rloo": recipes.RLOO,
    "rloo without a KL term": recipes.RLOO.with_(kl=None),
    "rloo of the shortest": recipes.RLOO.with_(kl=None, sample_filter=gfpo_shortest, num_kept=3),
    "gmpo": recipes.GMPO.with_(**TWICE, epsilon=0.01, epsilon_high=0.02),  # so that it clips something
    "gmpo with a KL term": recipes.GMPO.with_(
        **TWICE, kl=KLInLoss(k3, 0.1), keep=mask_truncated_completions, renormalise=False
    ),
    "vespo": recipes.VESPO.with_(**TWICE, vespo_k_pos=1.5),
    "reinforce": recipes.REINFORCE,
    "bnpo": recipes.BNPO.with_(**TWICE),
    "maxrl": recipes.MAXRL.with_(**TWICE),
    "gfpo": recipes.GFPO.with_(**TWICE, num_kept=3),
    "grpo with another eps": recipes.GRPO.with_(**TWICE, eps=0.1),
    "grpo without the cut off": recipes.GRPO.with_(**TWICE, keep=mask_truncated_completions, renormalise=False),
    "dr_grpo without the cut off": recipes.DR_GRPO.with_(**TWICE, keep=mask_truncated_completions, renormalise=False),
    "gspo without the cut off": recipes.GSPO.with_(**TWICE, keep=mask_truncated_completions, renormalise=False),
    "rloo without the cut off": recipes.RLOO.with_(keep=mask_truncated_completions, renormalise=False),
}
EXACT = 1e-5


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def distances(recipe, mapped, monkeypatch):
    ours, rollout = bridged.ours_online(recipe, monkeypatch)
    theirs = bridged.trl_online(mapped, rollout)
    assert len(ours) == len(theirs) == mapped.options["num_iterations"]
    return [bridged.apart(a, b) for a, b in zip(ours, theirs, strict=True)]


#: Always compared: together they have every trainer, level of the ratio, scale of the advantage, way to mask and to correct, and a hook.
ALWAYS = {"masked_grpo", "dapo", "gspo with a second bound", "cispo of whole replies", "rloo", "gfpo"}


def each(names, always):
    """A case per name; those that are not always compared are left to a release."""
    return [pytest.param(name, marks=[] if name in always else [pytest.mark.release]) for name in names]


@pytest.mark.parametrize("name", each(ONLINE, ALWAYS))
def test_bridge_online_steps_are_trls(name, monkeypatch):
    mapped = trl.online(ONLINE[name])
    assert not mapped.differs
    assert max(distances(ONLINE[name], mapped, monkeypatch)) < EXACT


WRONG = {
    "grpo": [
        {"use_bias_correction_kl": True},
        {"loss_type": "dapo"},
    ],  # the first is TRL's default; agrees in the first step
    "cispo": [{"epsilon_high": 0.05}],  # ours, where TRL wants 1 more
    "gspo": [{"importance_sampling_level": "token"}],
    "masked_grpo": [{"off_policy_mask_threshold": None}],
    "dapo": [{"mask_truncated_completions": False}],
    "lite_ppo": [{"scale_rewards": "group"}],
    "gmpo": [{"epsilon": 0.4}],
    "vespo": [{"vespo_k_pos": 2.0}],
    "rloo of the shortest": [{"loss_type": "dr_grpo"}],
}


def seen(ours, theirs):
    """Whether a comparison would have found this difference."""
    return max(bridged.apart(a, b) for a, b in zip(ours, theirs, strict=True)) > 100 * EXACT


@pytest.mark.parametrize("name", each(WRONG, {"dapo"}))
def test_bridge_online_comparison_sees_a_wrong_map(name, monkeypatch):
    mapped = trl.online(ONLINE[name])
    ours, rollout = bridged.ours_online(ONLINE[name], monkeypatch)
    for wrong in WRONG[name]:
        changed = dataclasses.replace(mapped, options={**mapped.options, **wrong})
        assert seen(ours, bridged.trl_online(changed, rollout))


MAPPED = {}
for name in PREFERENCES:
    with contextlib.suppress(NoCounterpartError):
        if not (plan := trl.offline(PREFERENCES[name])).differs:  # KTO's reference point: test_bridge_templates.py
            MAPPED[name] = plan


@pytest.mark.parametrize("name", each(MAPPED, {"dpo", "cdpo", "f_dpo", "simpo"}))
def test_bridge_preference_steps_are_trls(name):
    ours, theirs = bridged.ours_offline(PREFERENCES[name]), bridged.trl_offline(MAPPED[name])
    assert len(ours) == len(theirs) == 2
    assert max(bridged.apart(a, b) for a, b in zip(ours, theirs, strict=True)) < EXACT


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dpo", {"loss_type": ["ipo"]}),
        pytest.param("f_dpo", {"beta": 0.1}, marks=pytest.mark.release),
        pytest.param("cdpo", {"loss_weights": [1.0, 0.0]}, marks=pytest.mark.release),
        pytest.param("simpo", {"cpo_alpha": 1.0}, marks=pytest.mark.release),
    ],
)
def test_bridge_preference_comparison_sees_a_wrong_map(name, wrong):
    mapped = dataclasses.replace(MAPPED[name], options={**MAPPED[name].options, **wrong})
    assert seen(bridged.ours_offline(PREFERENCES[name]), bridged.trl_offline(mapped))


PLAIN = {
    "sft of one reply": ("sft", bridged.ONE, SFTConfig(batch_size=6, **bridged.STEPS)),
    "sft of two replies": ("sft", bridged.TWO, SFTConfig(batch_size=6, **bridged.STEPS)),
    "sft on the last of two": ("sft", bridged.TWO, SFTConfig(batch_size=6, **bridged.STEPS), {"train_on": "last"}),
    "sft on all of one": ("sft", bridged.ONE, SFTConfig(batch_size=6, **bridged.STEPS), {"train_on": "all"}),
    "sft on all of two": ("sft", bridged.TWO, SFTConfig(batch_size=6, **bridged.STEPS), {"train_on": "all"}),
    "dynamic fine-tuning": ("sft", bridged.ONE, SFTConfig(batch_size=6, **bridged.STEPS), {"loss_type": "dft"}),
    "packed sft": ("sft", bridged.TWO, bridged.PACKED),
    "packed dynamic fine-tuning on all": ("sft", bridged.TWO, bridged.PACKED, {"loss_type": "dft", "train_on": "all"}),
    "reward": ("reward", bridged.PAIRS, RewardConfig(batch_size=6, **bridged.STEPS)),
}
CENTRED = ("reward", bridged.PAIRS, RewardConfig(batch_size=6, center_rewards_coefficient=0.1, **bridged.STEPS))


@pytest.mark.parametrize("name", each(PLAIN, {"sft of two replies", "packed dynamic fine-tuning on all", "reward"}))
def test_bridge_steps_without_a_recipe_are_trls(name):
    ours, theirs = bridged.ours_plain(*PLAIN[name]), bridged.trl_plain(PLAIN[name][0], *bridged.exported(*PLAIN[name]))
    assert len(ours) == len(theirs) == 2
    assert max(bridged.apart(a, b) for a, b in zip(ours, theirs, strict=True)) < EXACT


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sft of two replies", {"assistant_only_loss": False}),  # learns the questions too
        pytest.param("sft on all of one", {"completion_only_loss": True}, marks=pytest.mark.release),
        pytest.param("dynamic fine-tuning", {"loss_type": "nll"}, marks=pytest.mark.release),
        # cuts conversations at the ends of rows
        pytest.param("packed sft", {"packing_strategy": "wrapped"}, marks=pytest.mark.release),
        pytest.param("reward", {"center_rewards_coefficient": 0.1}, marks=pytest.mark.release),
    ],
)
def test_bridge_comparison_without_a_recipe_sees_wrong_options(name, wrong):
    options, rows = bridged.exported(*PLAIN[name])
    assert seen(bridged.ours_plain(*PLAIN[name]), bridged.trl_plain(PLAIN[name][0], {**options, **wrong}, rows))


def test_bridge_reward_bias_that_only_we_have_learns_to_centre():
    ours, theirs = bridged.ours_plain(*CENTRED), bridged.trl_plain("reward", *bridged.exported(*CENTRED))
    first, second = (bridged.apart(a, b) for a, b in zip(ours, theirs, strict=True))
    assert first < EXACT < 100 * EXACT < second
    reward = lambda config: trl.reward(RunSpec("reward", None, config, None))
    assert len(reward(CENTRED[2]).differs) == 1 and not reward(RewardConfig()).differs


def mine(rewards, valid=None):
    """A reader's own advantage, in a file of theirs."""
    return rewards


@pytest.mark.parametrize(
    ("recipe", "argument", "value"),
    [
        (recipes.PPO, "credit", "gae"),
        (recipes.REINFORCE_PP_BASELINE, "estimator", "k2"),
        (recipes.RLOO.with_(sample_filter=gfpo_shortest), "sample_filter", None),
        (recipes.GFPO.with_(keep=mask_truncated_completions), "sample_filter", None),
        (recipes.GMPO.with_(corrections=recipes.MASKED_GRPO.update.corrections), "corrections", None),
        (recipes.VESPO.with_(corrections=recipes.MASKED_GRPO.update.corrections), "corrections", None),
        (recipes.GSPO.with_(weights=recipes.DAPO.update.weights), "weights", "token_mean"),
        (recipes.GRPO.with_(advantage=mine), "function", f"{__name__}.mine"),
        (recipes.DAPO.with_(renormalise=False), "renormalise", False),
        (recipes.GRPO.with_(keep=mask_truncated_completions), "renormalise", True),
        (recipes.VAPO, "positive_coef", 0.1),
        (recipes.GRPO.with_(entropy_coef=0.01), "entropy_coef", 0.01),
        (recipes.HIGH_ENTROPY, "top_entropy_quantile", 0.2),
        (recipes.RLOO.with_(num_iterations=2), "num_iterations", 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_bridge_trl_refuses_what_has_no_counterpart(recipe, argument, value):
    with raises(NoCounterpartError, argument=argument, value=value):
        trl.online(recipe)


@pytest.mark.parametrize("engine", ["trl", "openrlhf"])
def test_bridge_reward_refuses_settings_without_a_counterpart(engine):
    asked = lambda **settings: RunSpec("reward", None, RewardConfig(**settings), None)
    assert ENGINES[engine].mapped(asked()).trainer in ("trl.RewardTrainer", "openrlhf.cli.train_rm")
    for name, value in (
        ("label_smoothing", 0.1),
        ("loss", "plackett_luce"),
        ("margin_coefficient", 0.5),
        ("balance_prompts", True),
        ("nll_coefficient", 0.1),
    ):
        with raises(NoCounterpartError, argument=name, value=value):
            ENGINES[engine].mapped(asked(**{name: value}))
    with raises(NoCounterpartError, argument="trainer", value="judge"):
        ENGINES[engine].mapped(RunSpec("judge", None, SFTConfig(), None))


def test_bridge_trl_takes_a_readers_own_recipe():
    mine = recipes.GRPO.with_(
        name="mine", source="me", advantage=recipes.DR_GRPO.credit.advantage, epsilon_high=0.3, kl=None
    )
    assert trl.online(mine).options["scale_rewards"] == "none"
    assert trl.online(mine).options["epsilon_high"] == 0.3


def test_bridge_trl_lists_what_differs():
    assert len(trl.online(recipes.DAPO).differs) == 2
    assert trl.online(recipes.GRPO).differs == ()


# -- the folder ------------------------------------------------------------------------------------------------------

QUICK = ["--max-steps", "2", "--batch-size", "2", "--vocab-size", "300", "--context", "64", "--eval-fraction", "0.3"]
ROWS = {
    "grpo": [{"prompt": f"say {n}", "reference": str(n)} for n in range(8)],
    "dpo": [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)],
    "reward": [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)],
    "sft": [{"prompt": f"q{n}", "completion": f"good {n}"} for n in range(8)],
    "kto": [
        {"prompt": f"q{n}", "completion": f"{'good' if n % 4 else 'bad'} {n}", "label": n % 4 > 0} for n in range(13)
    ],
}


def run_of(trainer, folder, *extra):
    data = folder / "d.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[trainer]))
    (folder / "my.py").write_text("def fn(completion):\n    return float(len(completion) % 3)\n")
    online = ["--grader", f"{folder}/my.py:fn", "--max-completion-length", "6", "--num-generations", "2"]
    argv = [
        "train",
        "online" if "--recipe" in extra else trainer,
        "--data",
        str(data),
        "--out",
        str(folder / "run"),
        *QUICK,
        *(online if trainer == "grpo" else []),
    ]
    assert main([*argv, *extra]) == 0
    return folder / "run"


#: Every kind of script: with a hook and a fresh adapter, plain, and with an adapter to go on from.
LAUNCHED = [
    ("grpo", ["--recipe", "maxrl", "--lora-r", "2"], []),
    ("dpo", ["--lora-r", "2"], ["--model", "adapter"]),
    *(pytest.param(trainer, [], [], marks=pytest.mark.release) for trainer in ("dpo", "reward", "sft")),
]


@pytest.mark.parametrize(("trainer", "asked", "exported"), LAUNCHED)
def test_export_to_trl_trains_and_comes_back(trainer, asked, exported, tmp_path):
    run, out = run_of(trainer, tmp_path, *asked), tmp_path / "big"
    assert main(["export", str(run), "--out", str(out), *exported]) == 0
    assert {"model", "data.jsonl", "train.py", "DIFFERENCES.md"} <= {p.name for p in out.iterdir()}
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
    done = finished([sys.executable, "train.py"], usually=10, cwd=out, env=env)
    assert done.returncode == 0, done.stdout[-2000:]
    if trainer == "reward":
        RewardModel.from_pretrained(out / "out/model")
        return
    before, _ = load_folder(out / "model")
    after, _ = load_folder(out / "out/model")
    moved = max(
        float((a - b).detach().abs().max()) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    )
    assert 0 < moved < 1


#: The trainers whose scripts are launched, and the options of their runs; gradients are not clipped, so that their scale is compared too.
SHARED = {"sft": [], "dpo": [], "reward": [], "grpo": [], "grpo with a hook": ["--recipe", "maxrl"]}
PROCESSES = [
    *("--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"),
    *("--mixed_precision", "no", "--dynamo_backend", "no"),
]


def gradients(trainer, folder, *flags):
    """The gradients of four steps of the exported script: of one process, and of each of two under ``accelerate``."""
    run, out = run_of(trainer, folder, "--max-grad-norm", "1000", "--max-steps", "4", *flags), folder / "big"
    assert main(["export", str(run), "--out", str(out), *(["--allow-differences"] if trainer == "kto" else [])]) == 0
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
    env |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    script = str(Path(__file__).parent / "launched.py")
    for launcher, word in (([], "one"), (["-m", "accelerate.commands.launch", *PROCESSES], "two")):
        done = finished([sys.executable, *launcher, script, word], usually=30, cwd=out, env=env)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "2 process(es)" in done.stdout
    one, first, second = (torch.load(out / f"{file}.pt") for file in ("one-0", "two-0", "two-1"))
    assert len(one) == len(first) == len(second) == 4
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    return one, first


def far(a, b):
    return float((a - b).norm() / a.norm())


@pytest.mark.release
@pytest.mark.parametrize("name", SHARED)
def test_export_under_accelerate_with_two_processes_makes_the_same_steps(name, tmp_path):
    odd = ["--limit", "7"]  # five rows to train on, two a step: the third step is over the end of an epoch
    one, two = gradients(name.split()[0], tmp_path, *odd, *SHARED[name])
    assert max(far(a, b) for a, b in zip(one, two, strict=True)) < EXACT
    assert far(*one[:2]) > 100 * EXACT  # two steps are not one step twice


@pytest.mark.release
def test_export_of_kto_under_accelerate_with_two_processes_makes_the_same_first_step(tmp_path):
    """From then on the reference point is of other neighbours, as DIFFERENCES.md says."""
    one, two = gradients("kto", tmp_path, "--batch-size", "4", "--learning-rate", "1e-2")
    distances = [far(a, b) for a, b in zip(one, two, strict=True)]
    assert distances[0] < EXACT < max(distances[1:]) < 0.01, distances  # the size that is told there
    assert "each process" in (tmp_path / "big" / "DIFFERENCES.md").read_text()


def test_export_grader_is_the_runs(tmp_path, monkeypatch):
    run, out = run_of("grpo", tmp_path), tmp_path / "big"
    assert main(["export", str(run), "--out", str(out)]) == 0
    monkeypatch.chdir(out)
    code = "import grader; print(grader.grade([{'role': 'user', 'content': 'x'}], 'four'))"
    done = finished([sys.executable, "-c", code], usually=5, stderr=subprocess.PIPE)
    assert done.stdout.strip() == "1.0", done.stderr


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["export", "RUN", "--out", "RUN"], {"argument": "--out", "value": "RUN", "problem": "exists"}),
        (["export", "nowhere", "--out", "OUT"], {"argument": "run", "value": "nowhere"}),
        (["export", "RUN/model", "--out", "OUT"], {"argument": "run", "value": "RUN/model"}),
    ],
)
def test_export_with_bad_arguments_is_refused(argv, facts, tmp_path):
    run = run_of("sft", tmp_path)
    real = lambda word: word.replace("RUN", str(run)).replace("OUT", str(tmp_path / "big"))
    with raises(UserError, **{name: real(fact) for name, fact in facts.items()}):
        dispatch([real(word) for word in argv])
    assert not (tmp_path / "big").exists()


def test_export_of_a_recipe_that_differs_needs_accept_differences(tmp_path):
    run, out = run_of("grpo", tmp_path, "--num-minibatches", "2"), tmp_path / "big"
    with raises(UserError, argument="--allow-differences") as refused:
        dispatch(["export", str(run), "--out", str(out)])
    [difference] = refused.value.value
    assert main(["export", str(run), "--out", str(out), "--allow-differences"]) == 0
    assert difference in (out / "DIFFERENCES.md").read_text()


def test_bridge_gradients_are_those_of_two_steps():
    """The comparison itself: two steps are not one step twice."""
    first, second = bridged.ours_offline(PREFERENCES["dpo"])
    assert bridged.apart(first, second) > 0.01
    assert all(torch.isfinite(grad).all() for grad in second.values())
