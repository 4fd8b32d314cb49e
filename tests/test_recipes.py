"""The recipe table: binding by name, and the gradient of a step against the exact oracle."""

import dataclasses
import itertools
import math
import random
import re
from functools import partial

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM
from minirlhf.data.types import Rollout
from minirlhf.equations.advantages import group_center, leave_one_out
from minirlhf.equations.aggregation import fixed_length, sequence_sum, token_mean
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.equations.policy_losses import cispo, gspo, ppo_clip, reinforce
from minirlhf.recipes import (
    DAPO,
    DR_GRPO,
    GAE,
    GRPO,
    PPO,
    RLOO,
    DynamicSampling,
    GroupAdvantage,
    KLInLoss,
    KLInReward,
    RewardToGo,
)
from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf.recipes.offline import PREFERENCES, describe_preference
from minirlhf.recipes.options import name_of
from minirlhf.recipes.parts import ScoredRollout, gfpo_shortest, mask_truncated_completions, penalize_overlong
from minirlhf.recipes.recipe import describe
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.policy_update import policy_losses
from minirlhf.trainers.toy import train_toy
from minirlhf_cli import main
from minirlhf_cli.settings import meaning


def graded_pair(lm: ToyLM, first: int, second: int, rewards: torch.Tensor, ref: ToyLM | None = None) -> ScoredRollout:
    """The rollout in which responses ``first`` and ``second`` were sampled for the only prompt."""
    rows = torch.tensor([first, second])
    batch = lm.batch()
    mask = batch["mask"][rows]
    logps = lm.completion_token_logps()[0][rows].detach()
    rollout = Rollout(
        input_ids=batch["input_ids"][rows],
        attention_mask=batch["attention_mask"][rows],
        mask=mask,
        old_logps=logps,
        behavior_logps=logps,
        policy_version=torch.where(mask, 0, -1),
        terminated=lm.completions().terminated[rows],
        num_generations=2,
    )
    ref_logps = None if ref is None else ref.completion_token_logps()[0][rows].detach()
    return ScoredRollout(rollout, rewards[rows][None], torch.ones(1, 2, dtype=torch.bool), ref_logps)


def expected_step(lm: ToyLM, recipe: recipes.Recipe, rewards: torch.Tensor, ref: ToyLM | None = None) -> torch.Tensor:
    """E[gradient of the trainer's loss] over all pairs of responses, each weighted with its probability."""
    probs = lm.distribution()[0].detach()
    total = torch.zeros_like(lm.table)
    config = OnlineConfig(batch_size=1, num_generations=2, max_completion_length=lm.max_len)
    for i in range(len(probs)):
        for j in range(len(probs)):
            graded = graded_pair(lm, i, j, rewards, ref)
            advantages = recipe.credit(graded, recipe.update.kl)
            weights = recipe.update.weights(graded.rollout.mask)
            losses = list(policy_losses(lm, graded, advantages, recipe, config, torch.arange(2), weights, []))
            total += probs[i] * probs[j] * torch.autograd.grad(sum(losses), lm.table)[0]
    return total


@pytest.fixture
def world() -> tuple[ToyLM, ToyLM, torch.Tensor]:
    lm, ref = ToyLM(3, 2, seed=1), ToyLM(3, 2, seed=2)
    rewards = torch.randn(lm.distribution().shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return lm, ref, rewards


def test_expected_rloo_step_is_the_exact_policy_gradient(world):
    lm, _, rewards = world
    step = expected_step(lm, RLOO.with_(kl=None, weights=sequence_sum), rewards)
    exact = torch.autograd.grad((lm.distribution()[0] * rewards).sum(), lm.table)[0]
    torch.testing.assert_close(-step, exact)


def test_expected_rloo_step_with_kl_in_the_reward_is_the_gradient_of_the_regularised_objective(world):
    lm, ref, rewards = world
    step = expected_step(lm, RLOO.with_(weights=sequence_sum, beta=0.3), rewards, ref)
    p, q = lm.distribution()[0], ref.distribution()[0].detach()
    exact = torch.autograd.grad((p * rewards).sum() - 0.3 * (p * (p / q).log()).sum(), lm.table)[0]
    torch.testing.assert_close(-step, exact)


def test_expected_dr_grpo_step_is_half_the_gradient_for_groups_of_two(world):
    lm, _, rewards = world
    recipe = DR_GRPO.with_(weights=sequence_sum)
    exact = torch.autograd.grad((lm.distribution()[0] * rewards).sum(), lm.table)[0]
    torch.testing.assert_close(-expected_step(lm, recipe, rewards), exact / 2)


def test_grpo_kl_in_the_loss_adds_its_own_gradient_only(world):
    lm, ref, rewards = world
    recipe = GRPO.with_(kl=KLInLoss(k2, 0.7), weights=sequence_sum)
    with_kl = expected_step(lm, recipe, rewards, ref)
    without = expected_step(lm, recipe.with_(kl=None), rewards)
    # E[∇ Σ_t k2] on policy: the sum over responses of p · ∇ ½ Σ_t (log π − log π_ref)², with p held fixed.
    logps = lm.completion_token_logps()[0]
    k2_sum = (0.5 * (logps - ref.completion_token_logps()[0].detach()) ** 2 * lm.completions().mask).sum(-1)
    expected = torch.autograd.grad((lm.distribution()[0].detach() * k2_sum).sum(), lm.table)[0]
    torch.testing.assert_close(with_kl - without, 0.7 * expected)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_policy_losses_in_micro_batches_have_the_same_gradient(world, size):
    lm, ref, rewards = world
    graded = graded_pair(lm, 0, 5, rewards, ref)
    rollout = graded.rollout
    rows = torch.tensor([0, 1, 0, 1, 1, 0])
    big = ScoredRollout(
        rollout.select(rows), graded.rewards.expand(3, 2), torch.ones(3, 2, dtype=torch.bool), graded.ref_logps[rows]
    )
    for recipe in (GRPO, GRPO.with_(weights=token_mean), DR_GRPO.with_(max_completion_length=4)):
        grads = []
        for micro in (None, size):
            config = OnlineConfig(batch_size=3, num_generations=2, micro_batch_size=micro)
            advantages = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None] * big.rollout.mask
            weights = recipe.update.weights(big.rollout.mask)
            losses = list(policy_losses(lm, big, advantages, recipe, config, torch.arange(6), weights, []))
            assert len(losses) == -(-6 // (micro or 6))
            grads.append(torch.autograd.grad(sum(losses), lm.table)[0])
        torch.testing.assert_close(grads[0], grads[1])


def test_with_binds_fields_and_hyperparameters_by_name():
    changed = GRPO.with_(epsilon_high=0.28, beta=0.1, num_iterations=2, weights=token_mean)
    assert changed.update.objective.keywords == {"epsilon_high": 0.28}
    assert changed.update.kl == KLInLoss(k3, 0.1)
    assert (changed.update.num_iterations, changed.update.weights) == (2, token_mean)
    assert GRPO.update.kl == KLInLoss(k3, 0.04)  # the original is as it was


def test_with_binds_a_hyperparameter_to_the_function_given_beside_it():
    recipe = DR_GRPO.with_(objective=GRPO.update.objective, epsilon=0.1, max_completion_length=7)
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert recipe.update.weights(mask)[0, 0] == pytest.approx(1 / 14)
    assert recipe.update.objective.keywords == {"epsilon": 0.1}


#: Overrides of many kinds; some are for others a taker, a rival or the end of one.
OVERRIDES = {
    "beta": (0.1, 0.3),
    "epsilon": (0.1,),
    "epsilon_high": (0.28,),
    "delta": (4.0,),
    "kl": (None, KLInLoss(k2), KLInReward(k1), KLInLoss(k2, 0.3)),
    "objective": (gspo, reinforce, partial(ppo_clip, epsilon=0.05), cispo),
    "weights": (token_mean, fixed_length),
    "max_completion_length": (7,),
    "credit": (GroupAdvantage(group_center), GAE(lam=0.5), RewardToGo()),
    "advantage": (group_center, leave_one_out),
    "lam": (0.9,),
    "gamma": (0.99,),
    "ddof": (0,),
    "num_iterations": (2,),
    "shape": ((penalize_overlong,), ()),
    "soft_punish_cache": (3,),
    "refill": (DynamicSampling(max_resampling_rounds=1), None),
    "max_resampling_rounds": (2,),
}


def outcome(recipe, changes):
    """What a recipe with these changes says of itself, or the error's facts."""
    try:
        recipe = recipe.with_(**changes)
    except UserError as problem:
        return problem.facts
    return recipe.name, describe(recipe), {name: name_of(value) for name, value in recipe.options().items()}


@pytest.mark.slow
@pytest.mark.parametrize("base", [GRPO, DAPO, PPO, recipes.GSPO], ids=lambda recipe: recipe.name)
def test_with_overrides_commute_and_none_is_dropped(base, suite_seed):
    rng, made, tries = random.Random(suite_seed), 0, 0
    while tries < 40 or made <= 5:  # enough of them must be recipes, and not errors
        tries += 1
        assert tries < 4000
        names = rng.sample(sorted(OVERRIDES), rng.randint(2, 3))
        changes = {name: rng.choice(OVERRIDES[name]) for name in names}
        together = outcome(base, changes)
        for order in itertools.permutations(names):
            assert outcome(base, {name: changes[name] for name in order}) == together
        if isinstance(together, tuple):
            made += 1
            for name, value in changes.items():
                assert together[2][name].startswith(name_of(value).rstrip(")"))  # with numbers that are set beside it


def test_with_option_that_nothing_takes_is_one_error_in_any_order():
    for build in (
        lambda: GRPO.with_(beta=0.1, kl=None),
        lambda: GRPO.with_(kl=None, beta=0.1),
        lambda: GRPO.with_(kl=None).with_(beta=0.1),
        lambda: GRPO.with_(objective=reinforce, kl=None).with_(beta=0.1),
    ):
        with raises(UserError, value="beta", problem="unknown"):
            build()
    assert GRPO.with_(beta=0.1).with_(kl=None).name == "GRPO with kl=none"  # the number went with its part


def test_with_number_beside_the_part_that_has_it_is_refused():
    for argument, changes in (
        ("beta", {"kl": KLInLoss(k2, 0.3), "beta": 0.1}),
        ("beta", {"kl": KLInReward(k1, 0.05), "beta": 0.2}),
        ("advantage", {"credit": GroupAdvantage(group_center), "advantage": leave_one_out}),
        ("lam", {"credit": GAE(), "lam": 0.9}),
    ):
        with raises(UserError, argument=argument, problem="duplicate"):
            GRPO.with_(**changes)
    assert GRPO.with_(kl=KLInLoss(k2)).with_(beta=0.1).update.kl == KLInLoss(k2, 0.1)


def test_with_number_before_its_function_is_refused():
    assert GRPO.with_(num_kept=2, sample_filter=gfpo_shortest).collect.sample_filter.keywords == {"num_kept": 2}
    assert GRPO.with_(sample_filter=gfpo_shortest).with_(num_kept=2).collect.sample_filter.keywords == {"num_kept": 2}
    with raises(UserError, value="num_kept", problem="unknown"):
        GRPO.with_(num_kept=2).with_(sample_filter=gfpo_shortest)


def test_filled_gives_way_to_a_chosen_value():
    mask = torch.ones(2, 3, dtype=torch.bool)

    def divisor(recipe):
        return 1 / (2 * float(recipe.resolved(max_completion_length=32).update.weights(mask)[0, 0]))

    inside = partial(fixed_length, max_completion_length=64)
    assert divisor(DR_GRPO) == 32
    assert divisor(DR_GRPO.with_(max_completion_length=64)) == divisor(DR_GRPO.with_(weights=inside)) == 64
    assert divisor(DR_GRPO.with_(name="mine", source="a blackboard", max_completion_length=64)) == 64
    variant = DAPO.with_(num_iterations=2)
    assert variant.resolved(max_completion_length=9).differences() == {"num_iterations": 2}
    assert DAPO.resolved(max_completion_length=9).collect.shape[0].keywords == {"max_completion_length": 9}


def test_describe_names_numbers_that_another_part_brings_along():
    moved = describe(recipes.REINFORCE_PP.with_(kl=KLInLoss(k2)))
    assert "beta=0.04 (REINFORCE_PP: 0.01)" in moved
    critic = recipes.VAPO.with_(credit=GAE(whiten_advantages=False))
    assert critic.differences() == {"critic_lam": None, "critic_warmup": 0, "lam": 0.95, "whiten_advantages": False}
    assert "GRPO: " not in describe(GRPO.with_(kl=KLInLoss(k2, 0.04))) + describe(GRPO.with_(beta=0.1))


def test_with_the_rows_own_values_is_that_row():
    for same in (GRPO.with_(), GRPO.with_(beta=0.04), GRPO.with_(epsilon=0.2, beta=0.04), GRPO.with_(kl=KLInLoss())):
        assert (same.name, same.heading(same.source)) == ("grpo", GRPO.heading(GRPO.source))
        assert same.differences() == {}
    assert GRPO.with_(beta=0.04) == GRPO and GRPO.with_(beta=0.04).with_(beta=0.1).name == "GRPO with beta=0.1"
    assert GRPO.with_(kl=KLInLoss(k2)).name == "GRPO with estimator=k2"
    assert RLOO.with_(kl=KLInLoss(k2)).name == "RLOO with kl=KLInLoss(k2, beta=0.04)"


def test_with_source_but_no_name_is_refused():
    with raises(UserError, argument="name", problem="missing"):
        GRPO.with_(source="a blackboard", beta=0.1)


def test_with_function_has_its_own_numbers_and_the_header_names_the_rows():
    assert DAPO.with_(objective=gspo).update.objective is gspo
    assert DAPO.with_(objective=gspo, epsilon_high=0.5).update.objective.keywords == {"epsilon_high": 0.5}
    for objective in (gspo, reinforce):
        assert "epsilon_high=none (DAPO: 0.28)" in describe(DAPO.with_(objective=objective))


def test_with_names_a_variant_after_its_changes_and_its_row():
    variant = GRPO.with_(epsilon_high=0.28).with_(beta=0.1)
    assert variant.name == "GRPO with beta=0.1, epsilon_high=0.28"
    assert variant.differences() == {"epsilon_high": 0.28, "beta": 0.1}
    for part in ("GRPO (Shao et al. (2024)", "beta=0.1, epsilon_high=0.28"):
        assert part in describe(variant)
    assert (
        len(describe(GRPO).splitlines()) == len(describe(variant).splitlines()) + 1
    )  # only the row deviates in nothing
    named = GRPO.with_(name="mine", beta=0.1)
    assert named.name == "mine" and named.differences() == {"beta": 0.1}
    assert describe(named).startswith("mine: ") and "GRPO (Shao" in describe(named)
    mine = GRPO.with_(name="mine", source="a blackboard", beta=0.1)
    assert mine.with_(beta=0.2).name == "MINE with beta=0.2" and describe(mine).startswith("mine: a blackboard")


def test_moved_tells_which_deviations_speak_of_the_row_only():
    """So that a header never claims of a run what is not true of it."""
    moved = lambda recipe: [found for deviation in recipe.deviations if (found := recipe.changed_options(deviation))]
    assert moved(PPO) == []
    assert moved(PPO.with_(num_iterations=1, num_minibatches=8)) == [{"num_iterations": 1, "num_minibatches": 8}]
    # a value inside of a part counts too, one that is the row's own does not, and what is gone has no value
    assert {"beta": 0.02} in moved(PPO.with_(kl=KLInReward(k1, 0.02)))
    assert {"beta": None} in moved(PPO.with_(kl=None))
    assert moved(PPO.with_(epsilon=0.2, num_iterations=2)) == []
    assert all(
        "num_iterations=1" in line
        for line in set(PPO.with_(num_iterations=1).known_deviations()) - set(PPO.known_deviations())
    )
    wpo = PREFERENCES["wpo"]
    [weights] = [deviation for deviation in wpo.deviations if "loss" in deviation.options]
    assert weights in describe_preference(wpo.with_(beta=0.2))


def test_deviations_speak_of_options_of_their_row():
    rows = (*recipes.RECIPES.values(), *PREFERENCES.values())
    for row in rows:
        assert {option for deviation in row.deviations for option in deviation.options} <= row.options().keys()


#: Numbers that papers give, as TRL's index of papers repeats them (SimPO's: the authors' table, for Llama-3-Base).
GIVEN = {
    "dpo": {"beta": 0.1},
    "discopop": {"beta": 0.05, "tau": 0.05},
    "apo_zero": {"beta": 0.1},
    "apo_down": {"beta": 0.1},
    "exo_pair": {"beta": 0.1},
    "exo": {"beta": 0.1},
    "kto": {"beta": 0.1},
    "simpo": {"beta": 2.0, "gamma": 2.0 * 0.5},
    "robust_dpo": {"beta": 0.01, "label_smoothing": 0.1},
    "nca_pair": {"beta": 0.01},
    "bco_pair": {"beta": 0.01},
    "sppo": {"beta": 0.001},
    "dpo_length_normalised": {"beta": 5.0},
    "alpha_po": {"beta": 2.5, "alpha": 0.25, "gamma": 0.1},
}


@pytest.mark.parametrize("name", PREFERENCES)
def test_preference_loss_numbers_are_the_papers_or_declared(name):
    row = PREFERENCES[name]
    declared = {option for deviation in row.deviations for option in deviation.options}
    others = {option for option, value in GIVEN.get(name, {}).items() if row.options()[option] != value}
    assert others <= declared
    unknown = {"beta", "weight", "delta"} & row.numbers().keys() - GIVEN.get(name, {}).keys()
    assert unknown <= declared, "whose is the number?"


def test_meaning_is_documented_for_every_number_of_a_row():
    for row in (*recipes.RECIPES.values(), *PREFERENCES.values()):
        for option in row.numbers().values():
            assert meaning(option), f"{row.name}: say under 'Args' of {option.owner} what {option.name} means"


def test_recipes_command_and_help_show_numbers_with_default(capsys):
    def shown(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--help"])
        assert ended.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    everything, grpo, dpo = (shown("train", *of) for of in (("online",), ("online", "--recipe", "grpo"), ("dpo",)))
    assert "--lam" in everything and "--lam" not in grpo and "--num-iterations" in grpo
    default = lambda page: re.search(r": ([\d.]+)\)", page.rpartition("--beta ")[2])
    assert default(grpo)[1] == "0.04" and default(dpo)[1] == "0.1"
    assert main(["recipes", "grpo"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f"beta 0.04 {meaning(GRPO.choices()['beta'])}" in page
    assert f"num_iterations 1 {meaning(GRPO.choices()['num_iterations'])}" in page


def idle(recipe, **settings):
    """What has no effect in this recipe at these settings, by the names of the options."""
    return [found.options for found in recipe.unused_options(**{"num_generations": 8, **settings})]


MASKED_FAR = recipes.MASKED_GRPO.with_(off_policy_mask_threshold=3.0)


@pytest.mark.parametrize(
    ("recipe", "settings", "options"),
    [
        (GRPO, {}, []),
        (PPO, {}, []),
        (GRPO.with_(epsilon=0.1, num_iterations=2), {}, []),
        (GRPO.with_(epsilon=0.1, epsilon_high=0.3), {}, [("epsilon", "epsilon_high")]),
        (GRPO.with_(epsilon=0.1), {"staleness": 1}, []),  # then the ratio is not 1
        (recipes.DECOUPLED_PPO, {}, [("truncated_importance", "decoupled")]),
        (recipes.DECOUPLED_PPO, {"staleness": 2}, []),
        (recipes.DECOUPLED_PPO.with_(decoupled=False), {"truncates": True}, []),
        (recipes.GFPO.with_(num_kept=8), {}, [("sample_filter",)]),
        (recipes.GFPO, {}, []),
        (GRPO.with_(num_minibatches=2, objective=gspo, epsilon=3e-4), {}, []),
        (GRPO.with_(renormalise=False), {}, [("renormalise",)]),
        (GRPO.with_(renormalise=False, keep=mask_truncated_completions), {}, []),
        (MASKED_FAR, {}, [("off_policy_sequence_mask",)]),
        (MASKED_FAR.with_(num_minibatches=2), {}, []),  # the policy may drift that far
        # what has weight 0 was asked for, and says nothing
        (GRPO.with_(beta=0), {}, [("beta",)]),
        (PPO.with_(vf_coef=0.0), {}, [("vf_coef",)]),
        (PPO.with_(critic_learning_rate_ratio=0.0), {}, [("critic_learning_rate_ratio",)]),
        (DAPO.with_(max_resampling_rounds=0), {}, [("refill",)]),
        (DAPO, {}, []),
        (recipes.VAPO, {"max_steps": 11}, []),
        (recipes.VAPO, {"max_steps": 10}, [("update",)]),
        (GRPO.with_(num_minibatches=16), {"completions": 8}, [("num_minibatches",)]),
    ],
    ids=lambda value: value.name if isinstance(value, recipes.Recipe) else str(value),
)
def test_unused_options_names_the_options_of_a_recipe(recipe, settings, options):
    assert idle(recipe, **settings) == options


def test_unused_options_names_the_critics_clip():
    found = idle(PPO.with_(cliprange_value=0.3, num_iterations=1, num_minibatches=1))
    assert any("cliprange_value" in options for options in found)


def test_credit_without_its_critic_or_reference_is_refused(world):
    with raises(UserError, argument="values", problem="missing"):
        PPO.with_(critic=None).validate()
    lm, _, rewards = world
    with raises(ValueError, argument="ref_logps"):
        GroupAdvantage(group_center)(graded_pair(lm, 0, 1, rewards), KLInReward(k1, 0.1))


def test_online_run_warns_at_its_start_of_what_has_no_effect(world, caplog):
    lm, ref, rewards = world
    config = OnlineConfig(max_steps=1, batch_size=1, num_generations=2)
    for quiet in (False, True):
        train_toy(lm, rewards[None], GRPO.with_(epsilon=0.1), config, ref_model=ref, quiet=quiet)
        [record] = caplog.records
        assert record.args[0] == "GRPO with epsilon=0.1" and record.args[1].options == ("epsilon",)


def test_with_unknown_option_or_recipe_is_answered_with_the_nearest_name():
    with raises(UserError, value="epsilon_hi", expected="epsilon_high"):
        GRPO.with_(epsilon_hi=0.28)
    with raises(UserError, argument="recipe", value="reinforse", expected="reinforce"):
        recipes.get("reinforse")


def test_describe_names_source_and_recipe():
    for recipe in recipes.RECIPES.values():
        text = describe(recipe)
        assert recipe.source in text and recipe.name in text
        assert "<lambda>" not in text
        assert dataclasses.asdict(recipe)["name"] == recipe.name


@pytest.mark.parametrize(
    ("row", "option", "value"),
    [(recipes.DAPO, "epsilon_high", -1), (recipes.GRPO, "beta", -0.1), (recipes.PPO, "critic_lam", 2.0), 
     (recipes.VESPO, "vespo_k_pos", -1), (recipes.GRPO, "num_minibatches", 0), (PREFERENCES["dpo"], "beta", -1.0), (DISTILLATIONS["kd"], "temperature", -1.0)],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_recipe_refuses_a_wrong_number_at_once(row, option, value):
    with raises(UserError, value=value):
        row.with_(**{option: value})
    assert row.with_(**{option: row.numbers()[option].value}).numbers()[option].value == row.numbers()[option].value


@pytest.mark.parametrize(
    "row", [*recipes.RECIPES.values(), *PREFERENCES.values(), *DISTILLATIONS.values()], ids=lambda row: row.name
)
def test_recipe_refuses_nan_in_every_number(row):
    unbounded = {"chosen_win_rate", "rejected_win_rate", "alpha"}
    for option, found in row.numbers().items():
        if not isinstance(found.value, bool) and option not in unbounded:
            with pytest.raises(UserError):
                row.with_(**{option: math.nan})


def test_describe_without_defaults_lists_the_choices_of_the_recipe_only():
    text = recipes.describe(recipes.GRPO.with_(entropy_coef=0.01), defaults=False)
    assert "entropy_coef" in text and "objective" in text and "kl " in text
    assert not any(name in text for name in ("ptx_coef", "corrections", "refill", "decoupled"))
    assert "ptx_coef" in recipes.describe(recipes.GRPO)


def test_distillation_has_no_option_without_an_effect():
    with raises(UserError, value="renormalise"):
        DISTILLATIONS["kd"].with_(renormalise=False)


@pytest.mark.parametrize(
    ("option", "part"), [("credit", "GroupAdvantage"), ("kl", "KLInLoss"), ("update", "PolicyUpdate")]
)
def test_recipe_takes_no_function_in_place_of_a_part(option, part):
    with raises(UserError, argument=option, value=group_center, expected=part):
        GRPO.with_(**{option: group_center})
