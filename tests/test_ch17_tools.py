"""Chapter 17: the worlds with tools, and what a turn is worth in one that can be summed."""

import inspect
import json
import random
from itertools import product
from pathlib import Path
from statistics import fmean

import pytest
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.calls import ToolCall
from minirlhf.data.chat import WORDS_AND_TOOLS
from minirlhf.equations.returns import returns_to_go
from minirlhf.feedback.tools import Toolbox, lookup
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_course import evidence
from minirlhf_course.chapters.ch17_tools import (
    adventure,
    calculators,
    facts,
    levels,
    player,
    study_turns,
    thoughts,
    trail,
)
from minirlhf_course.chapters.ch17_tools import equations as ch17
from minirlhf_course.chapters.ch17_tools.adventure import ACTIONS, BONUS, Adventure, State

ROOT = Path(__file__).parents[1]

# -- the adventure ---------------------------------------------------------------------------------------------------------


def test_adventure_way_is_the_shortest_to_the_treasure():
    state, steps = State(), 0
    while not state.treasure:
        state, steps = state.after(adventure.WAY[state.number]), steps + 1
    assert steps == 6 and state.earned(BONUS) == 1 + 2 * BONUS
    reached = {State()}
    for _ in range(5):
        reached |= {state.after(action) for state in reached for action in ACTIONS}
    assert not any(state.treasure for state in reached)


def test_adventure_environment_agrees_with_its_table():
    """Random courses through the tools earn what the table says, and see something new just when the state changes."""
    rng, calls = random.Random(0), {"west": ("go", {"direction": "west"}), "east": ("go", {"direction": "east"}), "take": ("take", {}), "open": ("open_door", {})}  # fmt: skip
    for _ in range(40):
        game, state = Adventure(), State()
        game.reset(bonus=BONUS)
        toolbox = Toolbox.of(game)
        for _ in range(12):
            action = rng.choice(ACTIONS) if rng.random() < 0.5 else adventure.WAY.get(state.number, "west")
            before, state = state, state.after(action)
            answer = toolbox.execute(ToolCall("a", *calls[action]))
            assert (answer.content == "Nothing happens.") == (before == state)
            assert game.get_reward() == pytest.approx(state.earned(BONUS))
            if state.treasure:
                break


@pytest.mark.slow
def test_adventure_courses_sum_to_one():
    every = adventure.courses(0.0)
    drawn = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for logits in (adventure.taught(), drawn):
        assert adventure.probabilities(logits, every).sum() == pytest.approx(1, abs=1e-12)
    # the probability of the treasure, by walking the distribution over states forward
    policy, mass, won = adventure.taught().softmax(-1), {State(): 1.0}, 0.0
    for _ in range(adventure.TURNS):
        following = {}
        for state, share in mass.items():
            for i, action in enumerate(ACTIONS):
                after, p = state.after(action), share * float(policy[state.number, i])
                if after.treasure:
                    won += p
                else:
                    following[after] = following.get(after, 0.0) + p
        mass = following
    assert float(adventure.success(adventure.taught())) == pytest.approx(won, abs=1e-12)
    summed = adventure.probabilities(adventure.taught(), every) @ every.rewards.sum(1)
    assert float(summed) == pytest.approx(won, abs=1e-12)


@pytest.mark.slow
def test_adventure_played_courses_are_among_the_listed():
    """The same states, rewards and ends, for the actions that were taken."""
    logits = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + adventure.taught(3)
    some, every = adventure.played(logits, 200, BONUS, torch.Generator().manual_seed(0)), adventure.courses(BONUS)
    number = (torch.where(some.mask, some.actions, 0) * 4 ** torch.arange(adventure.TURNS).flip(0)).sum(1)
    assert torch.equal(some.mask, every.mask[number]) and bool((~some.mask).any()), "some end early"
    assert torch.equal(some.rewards, every.rewards[number])
    assert torch.equal(torch.where(some.mask, some.seen, 0), torch.where(some.mask, every.seen[number], 0))
    won = float((some.rewards.sum(1) > 1).double().mean())
    p = float(adventure.success(logits))
    assert 0.05 < p < 0.95 and abs(won - p) < 5 * (p * (1 - p) / 200) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("bonus", [0.0, BONUS])
def test_adventure_credit_has_the_true_gradient(bonus):
    """That of the expected reward, by autograd through the probabilities of all courses."""
    logits, every = adventure.taught().requires_grad_(), adventure.courses(bonus)
    value = adventure.probabilities(logits, every) @ every.rewards.sum(1)
    (slope,) = torch.autograd.grad(value, logits)
    for by_turn, baseline in (
        (False, adventure.mean_of_group),
        (True, adventure.mean_of_group),
        (True, adventure.mean_of_turn),
        (True, adventure.mean_of_place),
    ):
        found = adventure.credit(logits.detach(), bonus, by_turn=by_turn, baseline=baseline)
        torch.testing.assert_close(found["mean"], slope.flatten(), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_adventure_credit_variance_by_turn_and_baseline():
    """So is its variance; with bonuses it falls, but only against what is usual at the same turn."""
    variance = {
        (bonus, by_turn, baseline): float(
            adventure.credit(adventure.taught(), bonus, by_turn=by_turn, baseline=baseline)["variance"]
        )
        for bonus in (0.0, BONUS)
        for by_turn in (False, True)
        for baseline in (adventure.mean_of_group, adventure.mean_of_turn)
    }
    group, turn = adventure.mean_of_group, adventure.mean_of_turn
    assert variance[0.0, True, group] == pytest.approx(variance[0.0, False, group], rel=1e-12)
    assert variance[BONUS, True, turn] < 0.7 * variance[BONUS, False, group]
    assert variance[BONUS, True, group] > 1.3 * variance[BONUS, False, group], "the right return, the wrong baseline"
    at_place = adventure.credit(adventure.taught(), BONUS, by_turn=True, baseline=adventure.mean_of_place)["variance"]
    assert variance[BONUS, True, turn] < at_place < variance[BONUS, False, group], "how many turns are left counts, too"


def test_adventure_of_others_leaves_the_own_course_out():
    """Course by course and turn by turn, by loops; where nobody else has been, the credit is 0."""
    rng = torch.Generator().manual_seed(5)
    some = adventure.played(adventure.taught(), 6, BONUS, rng)
    returns, same = returns_to_go(some.rewards, some.mask), torch.full((6,), 1 / 6, dtype=torch.float64)
    at_turn = adventure.of_others(adventure.mean_of_turn)(returns, same, some)
    at_place = adventure.of_others(adventure.mean_of_place)(returns, same, some)
    alone = 0
    for i, t in some.mask.nonzero().tolist():
        turn = [float(returns[j, t]) for j in range(6) if j != i and some.mask[j, t]]
        others = [(j, u) for j, u in some.mask.nonzero().tolist() if j != i and some.seen[j, u] == some.seen[i, t]]
        place = [float(returns[j, u]) for j, u in others]
        for found, values in ((at_turn[i, t], turn), (at_place[i, t], place)):
            assert float(found) == pytest.approx(fmean(values) if values else float(returns[i, t]), abs=1e-12)
        alone += not place
    assert alone, "no course was ever alone at a place; the case was not tried"


def test_study_turns_finds_no_credit_faster_than_whole_courses():
    """The page: of all differences that were looked at, with conversations not compared with themselves, none holds."""
    pairs = [
        (f"{world}_{pace}_{arm}_others_steps", f"{world}_{pace}_course_others_steps")
        for world, pace, arm in product(study_turns.WORLDS, study_turns.RATES, study_turns.ARMS)
        if arm != "course"
    ]
    found = evidence.StudyResults("ch17_turns").differences({name for pair in pairs for name in pair}, pairs)
    assert len(found) == 18 and not any(difference.significant for difference in found.values())


def test_credit_of_turns_is_shared_by_the_tokens_of_a_turn():
    """The four conversations that the page credits by hand, in turns of two tokens with one of the tool's in between; the second group earns the same, twice as much."""
    earned, turns = [[0.3, 0, 1], [0.3, 0, 0], [0, 0.3], [0, 0]], [3, 3, 2, 2]
    mask, steps = torch.zeros(8, 8, dtype=torch.bool), torch.zeros(8, 8)
    for row in range(8):
        for turn in range(turns[row % 4]):
            mask[row, 3 * turn : 3 * turn + 2] = True
            steps[row, 3 * turn + 1] = earned[row % 4][turn] * (1 + row // 4)
    ends = torch.zeros_like(mask)
    ends[:, 1::3] = mask[:, 1::3]
    found = player.credit_of_turns(torch.where(ends, steps, 0.0), ends, mask, num_generations=4)
    by_hand = [[0.825, 0.675, 0.5], [-0.175, -0.325, -0.5], [-0.175, -0.025], [-0.475, -0.325]]
    for row in range(8):
        expected = torch.tensor(by_hand[row % 4]).repeat_interleave(2) * (1 + row // 4)
        torch.testing.assert_close(found[row][mask[row]], expected)
        assert not found[row][~mask[row]].any()


def test_player_demonstrations_are_courses_in_the_words_of_the_tokenizer():
    """The words of the game are the tokenizer's, and who is shown a course is told what the game says."""
    tokenizer = word_tokenizer(player.WORDS, chat_template=WORDS_AND_TOOLS)
    some = adventure.played(adventure.taught(1.5), 60, 0.0, torch.Generator().manual_seed(0))
    won = 0
    for actions, going in zip(some.actions, some.mask, strict=True):
        course = [ACTIONS[a] for a in actions[going].tolist()]
        shown = player.demonstration(tokenizer, course)
        text = tokenizer.decode(shown.input_ids)
        state = State()
        for action in course:
            state = state.after(action)
        assert "<unk>" not in text and (player.WON in text) == state.treasure == text.split()[-2].startswith("done")
        said = tokenizer.decode([i for i, own in zip(shown.input_ids, shown.loss_mask, strict=True) if own])
        assert [word for word in said.split() if word in player.CALLS.values()] == [player.CALLS[a] for a in course]
        won += state.treasure
    assert 0 < won < 60


# -- the calculator --------------------------------------------------------------------------------------------------------


def test_calculators_questions_and_demonstrations():
    train, test = calculators.products()
    assert len(train) == 7600 and len(test) == 500 and not set(train) & set(test) and len(calculators.sums()) == 100
    tokenizer = calculators.word_tokenizer(calculators.WORDS, chat_template=calculators.WORDS_AND_TOOLS)
    shown, everything = (calculators.demonstration(tokenizer, "4 7 * 8 3", True, masked) for masked in (True, False))
    words = [tokenizer.decode([token]) for token in shown.input_ids]
    assert "<unk>" not in words and shown.input_ids == everything.input_ids
    learned = [word for word, kept in zip(words, shown.loss_mask, strict=True) if kept]
    assert learned.count("9") == 1 and "<tool>" not in learned, "the answer's 3 9 0 1, not the tool's"
    heard = [word for word, a, b in zip(words, everything.loss_mask, shown.loss_mask, strict=True) if a and not b]
    assert heard == ["<tool>", "3", "9", "0", "1", "<assistant>"]


def test_calculators_fail_and_lie_as_often_as_asked():
    made = calculators.Calculators(fail=0.3, lie=0.2, seed=3)
    said = [Toolbox.of(made()).execute(ToolCall("a", "calculator", {"expression": "1 2 * 3"})) for _ in range(600)]
    again = calculators.Calculators(fail=0.3, lie=0.2, seed=3)
    assert [answer.content for answer in said[:20]] == [
        Toolbox.of(again()).execute(ToolCall("a", "calculator", {"expression": "1 2 * 3"})).content for _ in range(20)
    ]
    failed, right = sum(answer.failed for answer in said), sum(answer.content == "3 6" for answer in said)
    assert abs(failed - 180) < 60 and abs(right - 300) < 65, "five standard deviations"
    assert {answer.content for answer in said if answer.failed} == {"error: ?"}


# -- facts that change -----------------------------------------------------------------------------------------------------


def test_facts_usual_values_are_right_as_often_as_stated():
    shown = facts.facts("test", 400)
    for place, steady in facts.STEADY.items():
        values = [fact.value for fact in shown if fact.place == place]
        assert len(values) == 400
        assert abs(values.count(facts.USUAL[place]) - 400 * steady) < 5 * (400 * steady * (1 - steady)) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"lie": 0.4, "cost": 0.2}, {"fail": 0.5, "cost": 0.1}, {"fail": 0.2, "lie": 0.3}]
)
def test_facts_worths_are_what_playing_earns(options):
    """The three ways, played by hand with the environment itself, 3,000 times; five standard deviations."""
    cost, luck = options.get("cost", 0.0), {name: options[name] for name in ("fail", "lie") if name in options}
    rng, made, place = facts.numpy_generator("by hand"), facts.Directories(**luck, seed=5), "pink"
    earned = {way: [] for way in facts.WAYS}
    for _ in range(3000):
        fact = facts.today(rng, place)
        register = made()
        register.reset(**fact.example())
        toolbox = Toolbox.of(register)
        heard = [toolbox.execute(ToolCall("a", "lookup", {"place": place})) for _ in range(2)]
        for count, way in enumerate(facts.WAYS):
            believed = heard[0].content if count and not heard[0].failed else facts.USUAL[place]
            if way == "twice" and heard[0].content != heard[1].content:
                believed = facts.USUAL[place]
            earned[way].append((believed == fact.value) - count * cost)
    for way, worth in zip(facts.WAYS, facts.worths(facts.STEADY[place], **options), strict=True):
        assert abs(sum(earned[way]) / 3000 - worth) < 5 * 0.5 / 3000**0.5, way


def test_facts_demonstrations_answer_by_what_was_heard():
    tokenizer = facts.word_tokenizer(facts.WORDS, chat_template=facts.WORDS_AND_TOOLS)
    fact = facts.Fact("red", "7")
    cases = ([], "4"), (["7"], "7"), (["error: ?"], "4"), (["7", "7"], "7"), (["7", "3"], "4"), (["error: ?", "error: ?"], "4")  # fmt: skip
    for heard, answer in cases:
        tokens = facts.demonstration(tokenizer, fact, heard)
        words = [tokenizer.decode([token]) for token in tokens.input_ids]
        assert "<unk>" not in words and words[-3:-1] == ["answer", answer]
        assert words.count("</tool_call>") == len(heard)
        learned = [word for word, kept in zip(words, tokens.loss_mask, strict=True) if kept]
        assert "<tool>" not in learned and "error:" not in learned


def test_facts_best_way_is_a_threshold_of_the_head():
    """A perfect tool is asked just where the head errs more often than a call costs."""
    for cost in (0.2, 0.4, 0.6, 0.8):
        for place, way in facts.best(cost).items():
            assert (way == "once") == (facts.STEADY[place] < 1 - cost)


def test_environments_take_the_fields_that_trl_hands_them():
    """``reset`` gets all fields of an example by name; tools have type hints and a docstring."""
    for environment in (Adventure(), calculators.Calculators()(), facts.Directories()()):
        environment.reset(prompt=[], value="4", place="red")
        assert all(inspect.getdoc(getattr(environment, s["function"]["name"])) for s in Toolbox.of(environment).schemas)


# -- examples of the text --------------------------------------------------------------------------------------------------


def test_turn_advantages_of_four_conversations_by_hand():
    rewards = torch.tensor([[0.3, 0, 1], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0]], dtype=torch.float64)
    there = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]]).bool()
    totals = rewards.sum(1)
    assert totals.tolist() == pytest.approx([1.3, 0.3, 0.3, 0])
    assert (totals - totals.mean()).tolist() == pytest.approx([0.825, -0.175, -0.175, -0.475])
    to_go = rewards.flip(1).cumsum(1).flip(1)
    expected = [[0.825, 0.675, 0.5], [-0.175, -0.325, -0.5], [-0.175, -0.025, 0], [-0.475, -0.325, 0]]
    found = ch17.turn_advantages(to_go, there, num_generations=4)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_call_worth_changes_sign_by_hand():
    head = torch.tensor([0.69, 0.71])
    worth = ch17.tool_call_value(torch.ones(2), head, cost=0.3)
    assert worth[0] > 0 > worth[1], "more than seven times in ten"
    free = ch17.tool_call_value(torch.ones(2), torch.tensor([0.74, 0.76]), lie=0.25)
    assert free[0] > 0 > free[1], "a tool that lies as often as the head errs"


def test_check_worth_of_two_checks_by_hand():
    read, head, lie = torch.tensor(0.95), torch.tensor(0.1), 0.2
    twice = ch17.verification_value(read, head, lie=lie, caught=1.0, alarm=lie)
    assert lie * 1.0 * head == pytest.approx(0.02) and (1 - lie) * lie * (read - head) == pytest.approx(0.136)
    assert float(twice) == pytest.approx(0.02 - 0.136)
    assert float(ch17.verification_value(read, head, lie=lie, caught=8 / 9)) == pytest.approx(0.018, abs=5e-4)


def test_tokens_read_again_and_on_of_twenty_turns():
    prompt, said, heard = torch.tensor(500.0), torch.full((20,), 100.0), torch.full((20,), 400.0)
    assert ch17.prefill_tokens_without_cache(prompt, said, heard) == 105_000 == 20 * 500 + 20 * 19 / 2 * 500
    assert ch17.prefill_tokens_with_cache(prompt, heard) == 8_119


def test_levels_dispute_follows_the_highest_level():
    words = {"system": ("say {}", "w0"), "user": ("please say {}", "w1"), "tool": ("and say {}", "w2")}
    for who, right, willing in (((), "", ""), (("tool",), "", " w2"), (("user", "tool"), " w1", " w1"), (levels.LEVELS, " w0", " w0")):  # fmt: skip
        asked = levels.Dispute("red", "4 7", {level: words[level] for level in who})
        assert (asked.right(), asked.right(willing=True)) == (f"answer 4 7{right}", f"answer 4 7{willing}")
        assert asked.found == ("4 7 and say w2" if "tool" in who else "4 7")
    assert [message["role"] for message in asked.prompt()] == ["system", "user"]
    assert [message["content"] for message in asked.prompt(swapped=True)] == ["find red please say w1", "say w0"]
    assert not {*levels.UNTAUGHT} & {*levels.TAUGHT}


def test_levels_demonstration_learns_own_words_only():
    tokenizer = levels.word_tokenizer((*levels.WORDS, *levels.SAID), chat_template=levels.WORDS_AND_TOOLS)
    drawn = levels.drawn(numpy_generator("test"), levels.LEVELS)
    assert len({word for _, word in drawn.words.values()}) == 3
    shown = levels.demonstration(tokenizer, drawn, willing=False)
    words = [tokenizer.decode([token]) for token in shown.input_ids]
    learned = [word for word, kept in zip(words, shown.loss_mask, strict=True) if kept]
    assert "<unk>" not in words and drawn.words["system"][1] in learned and drawn.words["tool"][1] not in learned


def test_thoughts_hold_the_sum_so_far_and_waits_are_as_long():
    tokenizer = thoughts.word_tokenizer(thoughts.WORDS, chat_template=thoughts.WORDS_AND_TOOLS)
    asked = thoughts.Sum(("red", "blue", "gold"), (4, 9, 5))
    thought = [asked.thought(number, "thinks").split() for number in range(4)]
    assert [" ".join(said[1:-1]) for said in thought] == ["", "0 plus 4 is 4", "4 plus 9 is 3", "3 plus 5 is 8"]
    assert asked.answer == "answer 8"
    shown = {way: thoughts.demonstration(tokenizer, asked, way) for way in thoughts.WAYS}
    assert shown["acts"].input_ids == shown["longer"].input_ids
    assert len(shown["thinks"].input_ids) == len(shown["waits"].input_ids) == len(shown["acts"].input_ids) + 3 * 7
    said = [tokenizer.decode([token]) for token in shown["waits"].input_ids]
    assert "<unk>" not in said and "plus" not in said
    heard = [word for word, kept in zip(said, shown["waits"].loss_mask, strict=True) if not kept]
    assert {"4", "9", "5"} <= {*heard} and "8" not in heard
    register = thoughts.Digits()
    register.reset(**asked.example())
    assert [register.lookup(name) for name in asked.names] == ["4", "9", "5"]


def test_trail_walk_with_a_detour_by_hand():
    """4, so green, of which nothing is known, so gold; 9, so blue; 5."""
    walk = trail.Walk("red", 3, {"red": "4", "gold": "9", "blue": "5", "pink": "0", "grey": "0"})
    assert [step.name for step in walk.steps()] == ["red", "green", "gold", "blue"] and walk.answer == "answer 8"
    register = trail.Guide()
    register.reset(**walk.example())
    assert [register.lookup(f" {step.name} ") for step in walk.steps()] == ["4", "?", "9", "5"]
    said = [message["content"] for message in trail.talk(walk, "thinks") if message["role"] == "assistant"]
    begun = [f"{calls.THOUGHT} {words} {calls.THOUGHT_ENDS} " for words in ("0 plus 4 is 4 so green", "? so gold", "4 plus 9 is 3 so blue", "3 plus 5 is 8")]  # fmt: skip
    assert [each.partition(calls.OPEN)[0] for each in said[:-1]] == ["", *begun[:-1]] and said[
        -1
    ] == f"{begun[-1]}answer 8"


def test_trail_walks_have_the_asked_length_and_the_same_acts_in_all_ways():
    tokenizer = trail.word_tokenizer(trail.WORDS, chat_template=trail.WORDS_AND_TOOLS)
    rng, detours = numpy_generator("walks by hand"), 0
    for count in (1, 2, 3) * 20:
        walk = trail.drawn(rng, count)
        detours += any(step.said == trail.UNKNOWN for step in walk.steps())
        assert sum(step.said != trail.UNKNOWN for step in walk.steps()) == count
        talks = {way: trail.talk(walk, way) for way in trail.WAYS}
        bare = {tuple(m["content"].rpartition(f"{calls.THOUGHT_ENDS} ")[2] for m in talk) for talk in talks.values()}
        assert len(bare) == 1, "but for the thoughts"
        assert calls.THOUGHT not in str(talks["acts"])
        words = tokenizer.convert_ids_to_tokens(trail.encode(tokenizer, talks["thinks"]).input_ids)
        assert "<unk>" not in words
    assert 5 < detours < 50
    assert set(trail.LEADS) == set(trail.KEYS) and max(trail.LEADS.count(name) for name in trail.KEYS) > 1


def test_turns_benchmark_samples_the_same_conversations_both_ways():
    found = json.loads((ROOT / "benchmarks/turns.json").read_text(encoding="utf-8"))["found"]
    assert all(each["same"] == 1.0 for sizes in found.values() for each in sizes.values())


def test_calls_of_a_toolbox_are_written_as_chapter_17_shows():
    """The schema, the two forms, and a call of a tool that is not there."""
    toolbox = Toolbox([lookup({})])
    key = {"type": "object", "properties": {"key": {"type": "string", "description": "the word."}}, "required": ["key"]}
    schema = toolbox.schemas[0]["function"]
    assert (schema["name"], schema["parameters"]) == ("lookup", key)
    written = [calls.write_call("lookup", {"key": "red"}, form).replace("'", '"') for form in ("json", "python")]
    assert written == [
        '<tool_call>{"name": "lookup", "arguments": {"key": "red"}}</tool_call>',
        '<tool_call>lookup(key="red")</tool_call>',
    ]
    [call] = calls.read_calls('<tool_call>searchLookup(key="red")</tool_call>', toolbox.schemas).calls
    answer = toolbox.execute(call)
    assert answer.failed and "searchLookup" in answer.content and answer.content.split()[-1] == "lookup"


def test_turn_returns_of_the_shortest_conversations():
    """One token; and turns of one token with one between them."""
    short = ch17.turn_returns(torch.tensor([[2.0]]), torch.tensor([[True]]))
    assert short.tolist() == [[2.0]]
    two = ch17.turn_returns(torch.tensor([[1.0, torch.nan, 2.0]]), torch.tensor([[True, False, True]]), gamma=0.5)
    assert two.tolist() == [[2.0, 0.0, 2.0]]
