"""Chapter 16's further runs: what a chain's prefix is worth, what the best of N is, tokens weighed by a value, and how errors are planted, against brute force."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from facts import raises

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.tasks.knights_and_knaves import agrees, worlds
from minirlhf.data.tasks.shell_game import SWAPS, positions
from minirlhf.models.heads import ValueModel
from minirlhf_course import evidence
from minirlhf_course.chapters.ch16_reasoning import budget, entropy, guided, planted, puzzles, shorter, study_guided
from minirlhf_course.chapters.ch16_reasoning import credit_tables as tables
from minirlhf_course.chapters.ch16_reasoning import decoding_tables as decoding
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD
from minirlhf_course.chapters.ch16_reasoning.tables import Coin, Pool, paid_by_a_coin, samples_to_goal
from minirlhf_course.evidence import initial_models


def test_step_chain_values_are_sums_over_all_chains():
    chances = torch.rand(1, 4, tables.OFFSETS, generator=generator("chances"), dtype=torch.float64)
    chances = chances / chances.sum(-1, keepdim=True)
    found = tables.values(chances)[0]
    for after, total in itertools.product(range(5), range(tables.OFFSETS)):
        right = sum(
            math.prod(float(chances[0, after + i, offset]) for i, offset in enumerate(rest))
            for rest in itertools.product(range(tables.OFFSETS), repeat=4 - after)
            if (total + sum(rest)) % tables.OFFSETS == 0
        )
        assert float(found[after, total]) == pytest.approx(right, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "credit",
    [tables.StepCredit("outcome", 1.0), tables.StepCredit("continued", 1.0, 2), tables.StepCredit("exact", 1.0)],
)
def test_step_credit_is_a_policy_gradient(credit):
    """Its mean over many draws is the derivative of the chance of a right end; the group's own mean shrinks the outcome's by (G − 1)/G."""
    plan, draws = tables.StepChain(steps=3, kinds=3, group=8), generator("gradient", credit.continuations)
    logits, asked = tables.begin(plan).requires_grad_(), torch.arange(3)
    [wanted] = torch.autograd.grad(tables.values(logits.softmax(-1)[asked][None])[0, 0, 0], logits)
    if credit.kind == "outcome":
        wanted = wanted * (1 - 1 / plan.group)
    found = torch.stack([tables.credited(logits.detach(), asked, credit, plan, draws)[0] for _ in range(3000)])
    error = found.std(0) / math.sqrt(len(found))
    assert ((found.mean(0) - wanted).abs() < 5 * error + 1e-9).all()


def test_step_credit_counts_continuations_as_sampled_steps():
    plan = tables.StepChain(steps=3, kinds=3, group=2)
    taken = {
        kind: tables.credited(
            tables.begin(plan), torch.arange(3), tables.StepCredit(kind, 1.0, 4), plan, generator("cost")
        )[1]
        for kind in ("outcome", "continued", "exact")
    }
    # two replies of three steps; from the common beginning four of three steps, and for each reply four of two steps and four of one
    assert taken == {"outcome": 6, "exact": 6, "continued": 6 + 4 * 3 + 2 * 4 * (2 + 1)}


@pytest.mark.parametrize(("passed", "count"), [(0.1, 5), (0.5, 3), (0.9, 2)])
def test_beta_of_best_makes_best_of_n_the_optimum(passed, count):
    """By enumeration of all draws of N among four replies, two of them right."""
    reference = torch.tensor([0.3 * passed, 0.7 * passed, 0.6 * (1 - passed), 0.4 * (1 - passed)], dtype=torch.float64)
    rewards, best = [1.0, 1.0, 0.0, 0.0], torch.zeros(4, dtype=torch.float64)
    for drawn in itertools.product(range(4), repeat=count):
        top = max(rewards[i] for i in drawn)
        winners = [i for i in drawn if rewards[i] == top]
        for i in winners:
            best[i] += math.prod(float(reference[j]) for j in drawn) / len(winners)
    optimum = reference * (torch.tensor(rewards, dtype=torch.float64) / tables.beta_of_best(passed, count)).exp()
    assert torch.allclose(best, optimum / optimum.sum(), atol=1e-12)


def test_planted_openings_are_wrong_in_their_last_cup_only():
    prompts = planted.GAME.prompts("test")[:50]
    bad, good = planted.openings(prompts, 3)
    for prompt, wrong, right in zip(prompts, bad, good, strict=True):
        path = ["think", prompt.split()[1], *positions(prompt)]
        assert right.split() == path[: len(right.split())] and len(right.split()) >= 3
        assert wrong.split()[:-1] == right.split()[:-1] and wrong.split()[-1] != right.split()[-1]
        rest = path[len(right.split()) :]
        assert planted.follows(prompt, right, " ".join([*rest, "answer", path[-1]]))
        assert not planted.follows(prompt, wrong, " ".join([*rest, "answer", path[-1]])), (
            "swaps exchange: no error mends itself"
        )


def test_planted_second_thoughts_are_taken_back_at_once():
    task, rng, slipped = planted.BASES["second"], numpy_generator("slips"), 0
    for prompt in task.prompts("train")[:200]:
        said = task.demonstration(prompt, rng)
        assert task.grade(prompt, said) == 1
        words = said.split()
        if planted.NO in words:
            slipped += 1
            at = words.index(planted.NO)
            assert words[at - 1] != words[at + 1]
            assert [*words[: at - 1], *words[at + 1 :]] == task.reference(prompt).split()
    assert 20 < slipped < 90


@pytest.mark.parametrize("left", range(7))
def test_budget_stays_with_chance_after_half_a_thought(left):
    """By enumeration of all rows of swaps: after r of them the ball is where it was with chance 1/4 + 3/4 · 3^−r."""
    done = 6 - left
    rows = ["ball b swaps " + " ".join(["ab"] * done + list(rest)) for rest in itertools.product(SWAPS, repeat=left)]
    shares = sum(budget.stays(prompt, done) for prompt in rows) / len(rows)
    assert shares == pytest.approx(1 / 4 + 3 / 4 * 3.0**-left, abs=1e-12)


def test_budget_cut_and_settled_read_a_chain():
    prompt, chain = "ball c swaps cd bc bd ab ac ab", "think c d d b a no a c c answer c"
    assert budget.cut(chain, 0) == "think c answer"
    assert budget.cut(chain, 2) == "think c d d answer"
    assert budget.cut(chain, 99) == "think c d d b a no a c c answer"
    assert budget.settled(chain.split(" answer")[0]) == ["c", "d", "d", "b", "a", "c", "c"]
    assert [budget.first_cup(text) for text in ("answer b", "d", "bc a", "", "answer")] == ["b", "d", "a", None, None]
    assert budget.errs_before(prompt, "think c d d b b a b")  # an error at the fourth step, carried on
    assert not budget.errs_before(prompt, "think c d d b a c b")  # at the last
    for uneven in (
        "think c d d b a c",
        "think c d d b a b",
        "think c d d b b a a b",
    ):  # the last follows in two of them
        assert not budget.errs_before(prompt, uneven)


def test_budget_counts_chains_that_are_cut_or_told_to_wait(monkeypatch):
    """A policy by hand: four chains right, one wrong at its last step, one before, one a position short."""
    _, prompts = planted.games(7)
    paths = [[prompt.split()[1], *positions(prompt)] for prompt in prompts]
    other = lambda cup: next(c for c in "abcd" if c != cup)
    paths[4][-1] = other(paths[4][-1])
    paths[5][5] = other(paths[5][5])
    paths[5][6] = positions(f"ball {paths[5][5]} swaps {prompts[5].split()[-1]}")[0]
    paths[6] = [*paths[6][:-2], other(paths[6][-1])]
    after_own, after_planted = (0, 1, 2, 4), (0, 1, 2, 3, 4)  # right answers behind "no"

    def go_on(policy, asked, begun, seed):
        said = []
        for i, (prompt, text) in enumerate(zip(asked, begun, strict=True)):
            if text == "think":
                said.append(" ".join([*paths[i], "answer", paths[i][-1]]))
            elif text.endswith("answer"):
                said.append(f"answer {text.split()[-2]}")
            else:
                assert text.endswith(" no")
                good = i in (after_own if text.split()[1:-1] == paths[i] else after_planted)
                end = positions(prompt)[-1]
                said.append(f"answer {end if good else other(end)}")
        return said

    monkeypatch.setattr(budget, "go_on", go_on)
    waits = budget.when_told_to_wait(None, 7, 0)
    assert waits == pytest.approx(
        {"whole": 4 / 7, "waited": 4 / 7, "ends": 4 / 7, "spoiled": 1 / 4, "rescued": 1 / 3, "before": 1 / 3, "uneven": 1 / 3, "mended": 5 / 7}
    )  # fmt: skip
    cuts = budget.when_cut(None, 4, 0)
    assert cuts["whole"] == 1 and all(
        cuts[f"last_{k}"] == 1 and cuts[f"right_{k}"] == cuts[f"luck_{k}"] for k in range(7)
    )


@pytest.mark.parametrize("beta", [2.0, 0.5, 0.1])
def test_decoded_by_soft_value_draws_the_optimum(beta):
    """By enumeration of all chains of three steps: the Gibbs distribution, its right ends and its KL; weights exp(V/β) draw another one."""
    plan = tables.StepChain(steps=3)
    chances = tables.begin(plan).softmax(-1)[0]
    chains = list(itertools.product(range(tables.OFFSETS), repeat=3))
    policy = torch.stack([chances[list(chain)].prod() for chain in chains])
    right = torch.tensor([float(sum(chain) % tables.OFFSETS == 0) for chain in chains], dtype=torch.float64)
    optimum = policy * (right / beta).exp()
    optimum = optimum / optimum.sum()
    kl = float((optimum * (optimum / policy).log()).sum())
    worth = decoding.first_values(plan)
    ends, paid = decoding.decoded(decoding.by_soft(worth, beta), plan)
    assert float(ends[0]) == pytest.approx(float(optimum @ right), abs=1e-12)
    assert paid == pytest.approx(kl, abs=1e-12)
    other, paid_other = decoding.decoded(decoding.by_mean(worth, beta), plan)
    gained = lambda at, cost: float(at[0]) - beta * cost
    assert gained(other, paid_other) < gained(ends, paid) - 1e-6


def test_decoded_by_value_draws_replies_given_that_they_are_right():
    worth = decoding.first_values(tables.StepChain(steps=4))
    ends, paid = decoding.decoded(worth, tables.StepChain(steps=4))
    assert float(ends[0]) == pytest.approx(1, abs=1e-12)
    assert paid == pytest.approx(-math.log(float(worth[0, 0])), abs=1e-12)


def test_decoding_best_of_several_readings():
    said = torch.tensor([0.9, 0.2, 0.95, 0.1, 0.3], dtype=torch.float64)
    ends = torch.tensor([0.3, 0.2, 0.1, 0.3, 0.1], dtype=torch.float64)
    drawn = list(itertools.product(range(5), repeat=3))
    wanted = sum(math.prod(float(ends[i]) for i in three) for three in drawn if max(three, key=lambda i: said[i]) == 0)
    assert decoding.best(said, ends, 3) == pytest.approx(wanted, abs=1e-12)


def test_decoding_readings_without_noise_are_the_values():
    worth = decoding.first_values(tables.StepChain(steps=2))
    said = decoding.readings(worth, 0.0, 1)
    assert torch.allclose(said, decoding.MODEST + (1 - 2 * decoding.MODEST) * worth, atol=1e-12)
    assert not torch.allclose(decoding.readings(worth, 1.0, 1), decoding.readings(worth, 1.0, 2))


def test_shorter_demonstrations_take_their_usual_steps():
    prompts, rng = shorter.BASE.prompts("test")[:200], numpy_generator("thinkers")
    for task in (shorter.LONG, shorter.SHORT):
        said = [task.demonstration(prompt, rng) for prompt in prompts]
        assert all(task.grade(prompt, text) == 1 for prompt, text in zip(prompts, said, strict=True))
        usual = sum(shorter.steps(text) == task.usual for text in said) / len(said)
        assert usual == pytest.approx(0.7 + 0.3 / 7, abs=0.15)


def test_shorter_paid_is_grade_and_share_of_length_reward():
    """One group of four of the same game, three swaps long: ½ for the shortest, −½ for the longest, nothing above 0 for a wrong one."""
    game = next(p for p in shorter.task_problems(shorter.BASE, "test") if p.prompt[-1]["content"].count(" no") == 3)
    prompt = game.prompt[-1]["content"]
    right = [task.reference(prompt) for task in (shorter.SHORT, shorter.Thinker(3), shorter.LONG)]
    wrong = "think " + prompt.split()[1]
    assert [shorter.steps(text) for text in [*right, wrong]] == [1, 3, 6, 0]
    paid = shorter.paid(4, 0.3)([game] * 4, [*right, wrong])
    assert paid == pytest.approx([1 + 0.3 * (0.5 - 1 / 6), 1.0, 1 - 0.3 * 0.5, 0.0])


def test_paid_by_a_coin_moves_only_with_reused_coins():
    """Without a clip, coins that were used once leave the logit where it was on average, and coins used again pull it down from .8."""
    plan = Coin(runs=20_000, steps=1, learning_rate=2.0)
    start, error = math.log(4), 3 * math.sqrt(0.16 * 4 * 4 * 4 / plan.batch / plan.runs)
    once, again = (
        float(paid_by_a_coin(0.8, None, 0, plan, reused=reused).logit().mean()) - start for reused in (False, True)
    )
    assert abs(once) < error < -again


@pytest.mark.parametrize(
    ("completion", "form"),
    [
        ("think try k k n yes yes yes answer k k n", 1.0),
        ("think try k k n yes yes yes answer n n n", 1.0),
        ("try k k n yes yes yes answer k k n", 0.0),
        ("answer k k n", 0.0),
        ("think try k k n yes yes yes answer k k n answer k k n", 0.0),
        ("think try k k n yes yes yes answer k k", 0.0),
    ],
)
def test_puzzles_in_form_ignores_the_answer(completion, form):
    assert puzzles.in_form(completion) == form


def test_puzzles_thoughts_of_chains_by_hand():
    """By hand: three chains and a bare answer; of ten verdicts eight are right, and seven should be a yes."""
    puzzle = "A says part , B says A same C , C says all"
    whole = puzzles.WORLD.reference(puzzle)
    assert whole == "think try k k k no try k k n yes no try k n k yes no try k n n yes yes yes answer k n n"
    said = [whole, "think answer k k k", "answer k n n", "think try k n n no no answer k k k"]
    assert puzzles.thoughts([puzzle] * 4, said) == pytest.approx(
        {"tries": 5 / 3, "asked": 10 / 3, "verdicts": 0.8, "agreeing": 0.7, "follows": 1 / 3, "hollow": 1 / 4}
    )
    assert set(puzzles.thoughts([puzzle] * 2, ["answer k n n", ""]).values()) == {0.0}


def test_puzzles_demonstrations_are_right_and_half_in_form():
    """In half of the replies it keeps to the form."""
    rng = numpy_generator("careless")
    prompts = puzzles.WORLD.prompts("train")[:200]
    said = [(prompt, puzzles.WORLD.demonstration(prompt, rng)) for prompt in prompts]
    assert all(puzzles.WORLD.grade(prompt, reply) == 1.0 for prompt, reply in said)
    assert 70 < sum(puzzles.in_form(reply) for _, reply in said) < 130
    assert {puzzles.difficulty(prompt) for prompt in prompts} <= set(puzzles.LEVELS)


def test_puzzles_solution_is_the_world_of_most_agreement():
    """The solution is the one world in which most speakers agree."""
    for prompt in puzzles.WORLD.prompts("test")[:100]:
        said = puzzles.read(prompt)
        votes = {kinds: sum(agrees(s, i, kinds) for i, s in enumerate(said)) for kinds in worlds(3)}
        best = max(votes, key=votes.__getitem__)
        assert [best] == puzzles.solutions(said) and sorted(votes.values())[-2] < 3


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.7), (0.3, 1.0), (0.6, 0.2)])
def test_decoding_least_kl_is_that_of_two_coins(before, after):
    """By enumeration over four replies: no policy that is right as often pays less, and the one that only reweighs pays just that."""
    reference = torch.tensor([before / 3, 2 * before / 3, (1 - before) / 4, 3 * (1 - before) / 4], dtype=torch.float64)
    least = decoding.least_kl(before, after)
    kl = lambda policy: float(torch.special.xlogy(policy, policy / reference).sum())
    weights = torch.tensor([after / before] * 2 + [(1 - after) / (1 - before)] * 2, dtype=torch.float64)
    assert kl(reference * weights) == pytest.approx(least, abs=1e-12)
    share = torch.rand(100, 2, generator=generator("shares"), dtype=torch.float64)
    for a, b in share.tolist():
        other = torch.tensor([after * a, after * (1 - a), (1 - after) * b, (1 - after) * (1 - b)], dtype=torch.float64)
        assert kl(other) >= least - 1e-12


@pytest.fixture(scope="module")
def player():
    """The shell game, hardly learned, and twelve games."""
    return initial_models.shell_game()[0], WORLD.prompts("test")[:12]


class Prefers(torch.nn.Module):
    """A verifier that says one logit of replies that begin with a word, another of all others."""

    def __init__(self, prompt: int, word: int) -> None:
        super().__init__()
        self.prompt, self.word = prompt, word

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        said = torch.where(ids[:, self.prompt] == self.word, 2.0, -1.0)
        return said[:, None].expand(ids.shape)


@pytest.mark.parametrize("weigh", [guided.by_value, guided.by_exponential(0.3)])
def test_guided_by_an_ignorant_verifier_leaves_the_policy(player, weigh):
    policy, prompts = player
    head = ValueModel.from_causal_lm(policy.model, seed=1)  # it begins at 0
    found = guided.guided(policy, head, prompts, weigh, seed=1, top=len(policy.tokenizer))
    assert found.kl == pytest.approx(0, abs=1e-4) and len(found.texts) == len(prompts)


@pytest.mark.parametrize(
    ("weigh", "favour"),
    [(guided.by_value, (1 + math.exp(1)) / (1 + math.exp(-2))), (guided.by_exponential(0.3), None)],
)
def test_guided_by_the_first_word_has_the_kl_of_that_word(player, weigh, favour):
    """By hand: the first word is drawn by π times its weight, and all others by π."""
    policy, prompts = player
    tokenizer = policy.tokenizer
    ids = torch.tensor([encode_prompt(tokenizer, conversation(prompt)) for prompt in prompts])
    word = tokenizer.convert_tokens_to_ids("think")
    if favour is None:
        favour = math.exp((1 / (1 + math.exp(-2)) - 1 / (1 + math.exp(1))) / 0.3)
    with torch.no_grad(), evaluating(policy.model):
        chance = policy.model(ids).logits[:, -1].double().softmax(-1)[:, word]
    tilted = favour * chance / (1 - chance + favour * chance)
    kl = tilted * (tilted / chance).log() + (1 - tilted) * ((1 - tilted) / (1 - chance)).log()
    found = guided.guided(policy, Prefers(ids.shape[1], word), prompts, weigh, seed=2, top=len(tokenizer))
    assert found.kl == pytest.approx(float(kl.mean()), abs=1e-4) and float(kl.mean()) > 1e-3


def test_guided_refuses_prompts_of_several_lengths(player):
    policy, prompts = player
    with raises(ArgumentError, argument="prompts", problem="several lengths"):
        guided.guided(policy, torch.nn.Identity(), [prompts[0], "ball a"], guided.by_value, seed=1)


@pytest.mark.parametrize(("count", "kinds"), [(4, 15), (16, 24)])
def test_shell_game_first_prompts_hold_kinds_of_swaps(count, kinds):
    """The questions of "A few questions, over and over": from which cup, by which of six swaps, of 24."""
    met = set()
    for prompt in WORLD.prompts("train")[:count]:
        words = prompt.split()
        met |= set(zip([words[1], *positions(prompt)[:-1]], words[3:], strict=True))
    assert len(met) == kinds
    assert [positions(prompt)[-1] for prompt in WORLD.prompts("train")[:4]] == ["c", "a", "a", "a"]


def test_samples_to_goal_refuses_filters():
    pool = Pool(size=20, most=2)
    for filtering, chosen, argument, value in (
        ("offlin", {}, "filtering", "offlin"),
        ("curriculum", {"pace": 0}, "pace", 0),
        ("offline", {"kept": (9, 9)}, "kept", (9, 9)),
    ):
        with raises(ArgumentError, argument=argument, value=value):
            samples_to_goal(filtering, 1, pool, **chosen)


def test_kl_of_a_first_word_and_of_best_of_n():
    """The KL of replies that begin with a word of probability p is log 1/p, that of the best of n at most log n − (n − 1)/n."""
    shares = evidence.values(evidence.result("ch16_guided"), "sampled_thinks")
    assert sum(math.log(1 / share) for share in shares) / len(shares) == pytest.approx(1.79, abs=5e-3)
    assert math.log(4) - 3 / 4 == pytest.approx(0.64, abs=5e-3)
    assert math.log(16) - 15 / 16 == pytest.approx(1.84, abs=5e-3)


def test_without_largest_covariance_leaves_out_tokens():
    """Against a sum over tokens by hand; what stands behind a reply's end, here the largest of all, takes no part."""
    draws = generator("covariance")
    mask = torch.rand(6, 7, generator=draws) < 0.8
    logps, advantages = (torch.randn(6, 7, generator=draws) for _ in range(2))
    logps, advantages = (x.masked_fill(~mask, -100.0) for x in (logps, advantages))
    rows = [tuple(i) for i in mask.nonzero().tolist()]
    means = [sum(float(x[i]) for i in rows) / len(rows) for x in (logps, advantages)]
    ranked = sorted(rows, key=lambda i: -(float(logps[i]) - means[0]) * (float(advantages[i]) - means[1]))
    kept = entropy.without_largest_covariance(logps, SimpleNamespace(mask=mask), advantages, covariance_share=0.1)
    out = {tuple(i) for i in (kept == 0).nonzero().tolist()}
    assert len(out) == round(0.1 * len(rows)) >= 3 and out == set(ranked[: len(out)])
    assert set(kept.flatten().tolist()) == {0.0, 1.0}


def test_entropy_told_of_a_run_with_and_without_its_goal():
    history = {
        "reward": [0.0, 0.5, 1.0, 1.0, 0.5], "neg_logp": [5.0, 4.0, 3.0, 2.0, 1.0],
        "thinks": [0.0, 0.0, 1.0, 1.0, 1.0], "clip_fraction": [0.0, 0.1, 0.2, 0.3, 0.4],
    }  # fmt: skip
    found = entropy.told(history, (2, 5), 2, 0.9)
    assert found == pytest.approx(
        {
            "neg_logp_2": 4.5, "neg_logp_5": 1.5, "right_2": 0.25, "right_5": 0.75, "thinks_2": 0.0, "thinks_5": 1.0,
            "clipped": 0.2, "until": 4.0, "neg_logp_then": 2.5, "area": 0.6,
        }
    )  # fmt: skip
    assert entropy.told(history, (2,), 2, 1.1)["until"] == 5


def test_study_guided_records_no_thinkers_as_none_right(monkeypatch):
    tries = SimpleNamespace(
        prompts=["p", "q"], texts=[["answer a"] * 2] * 2, right=torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    )
    for name, found in (("learn", {}), ("sample_tries", tries), ("scores", {})):
        monkeypatch.setattr(study_guided, name, lambda *given, found=found: found)
    assert study_guided.one_seed(0, SimpleNamespace()) == {"sampled": 0.25, "sampled_thinks": 0.0, "aloud": 0.0}
