"""Every tiny world keeps the protocol; the assistant world's gold reward is the formula it states; preferences."""

import itertools
import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from facts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.data.preferences import (
    SimulatedAnnotator,
    label_pairs,
    length_bias,
    preference_probability,
    sample_pairs,
)
from minirlhf.data.tasks import (
    knights_and_knaves,
    phrasebook,
    running_sum,
    scratchpad,
    shell_game,
    small_programs,
    sort_digits,
)
from minirlhf.data.tasks.assistant import ANIMALS, ASSISTANT, FACTS, Features, features, gold
from minirlhf.feedback import graders

every_task = pytest.mark.parametrize("task", tasks.TASKS.values(), ids=tasks.TASKS)


# -- the protocol -----------------------------------------------------------------------------------------------------


@every_task
def test_task_keeps_protocol(task):
    assert isinstance(task, tasks.Task)
    assert tasks.get(task.name) is tasks.get(task.name.replace("_", "-")) is task
    assert len(set(task.words)) == len(task.words)
    assert all(word.split() == [word] for word in task.words)


@every_task
def test_task_splits_are_disjoint_and_without_repetition(task):
    train, test = task.prompts("train"), task.prompts("test")
    assert len(set(train)) == len(train) >= 500, "a prompt stands twice in train, or there are fewer than 500"
    assert len(set(test)) == len(test) >= 100, "a prompt stands twice in test, or there are fewer than 100"
    assert not set(train) & set(test), "a prompt stands in both splits"


@every_task
def test_task_prompts_are_copy(task):
    task.prompts("train").clear()
    assert task.prompts("train")


@every_task
def test_task_words_are_just_what_is_used(task):
    rng = np.random.default_rng(0)
    prompts = task.prompts("train")[:500] + task.prompts("test")[:100]
    texts = [*prompts, *map(task.reference, prompts), *(task.demonstration(p, rng) for p in prompts)]
    if hasattr(task, "document"):
        texts += [task.document(rng) for _ in range(500)]
    used = {word for text in texts for word in text.split(" ")}
    assert used == set(task.words), "a word is missing, or never used"


@every_task
def test_task_completions_fit_max_completion_length(task):
    rng = np.random.default_rng(0)
    for prompt in task.prompts("train")[:500]:
        for text in (task.reference(prompt), task.demonstration(prompt, rng)):
            assert len(text.split()) + 1 <= task.max_completion_length


@pytest.mark.slow
@every_task
def test_task_reference_scores_best(task):
    rng = np.random.default_rng(1)
    for prompt in task.prompts("test")[:25]:
        words = task.reference(prompt).split()
        best = task.grade(prompt, " ".join(words))
        places = range(len(words))
        edits = [words[:i] + words[i + 1 :] for i in places]
        edits += [[*words[:i], word, *words[i + 1 :]] for i in places for word in task.words]
        edits += [[*words[:i], word, *words[i:]] for i in range(len(words) + 1) for word in task.words]
        edits += [task.demonstration(prompt, rng).split() for _ in range(50)]
        edits += [rng.choice(task.words, size=rng.integers(0, task.max_completion_length)).tolist() for _ in range(50)]
        assert max(task.grade(prompt, " ".join(edit)) for edit in edits) <= best + 1e-12


@every_task
def test_task_demonstrations_depend_on_generator_only(task):
    prompts = task.prompts("train")[:20]
    first, second = ([task.demonstration(p, np.random.default_rng(7)) for p in prompts] for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_task_prompts_are_same_in_other_process():
    code = (
        "import hashlib; from minirlhf.data import tasks\n"
        "def digest(): return [hashlib.sha256(' '.join(t.prompts(s)).encode()).hexdigest() for t in tasks.TASKS.values() "
        "for s in ('train', 'test')]\n"
    )
    here: dict[str, Any] = {}
    exec(code, here)
    command = [sys.executable, "-c", f"{code}print(digest())"]
    there = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"}
    )
    assert there.stdout.strip() == str(here["digest"]())


@every_task
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_task_grade_of_any_text_is_finite(task, data):
    words = st.lists(st.sampled_from(task.words), max_size=12).map(" ".join)
    prompt = data.draw(st.one_of(st.text(), words, st.sampled_from(task.prompts("test"))))
    completion = data.draw(st.one_of(st.text(), words))
    assert math.isfinite(task.grade(prompt, completion))


def test_tasks_get_unknown_names_nearest():
    with raises(UserError, argument="task", value="shel-game", expected="shell_game"):
        tasks.get("shel-game")


WORLD = """
class Maze:
    name, words, max_completion_length = "maze", ("go",), 2
    def prompts(self, split): return ["go"]
    def reference(self, prompt): return "go"
    def demonstration(self, prompt, rng): return "go"
    {method}
MAZE = Maze()
"""


def test_tasks_find_lists_world_of_new_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    (tmp_path / "maze.py").write_text(WORLD.format(method="def grade(self, prompt, completion): return 1.0"))
    assert set(tasks.find()) == {*tasks.TASKS, "maze"}
    (tmp_path / "broken.py").write_text(WORLD.format(method="pass"))
    with raises(ValueError, argument="broken", expected="Task"):
        tasks.find()


# -- the worlds -------------------------------------------------------------------------------------------------------


def test_assistant_gold_is_stated_formula():
    def stated(f):
        return (
            1.2 * f.facts**0.5
            + (0.7 if f.polite else 0)
            - 0.6 * (f.polite - 1 if f.polite > 1 else 0)
            + (0.6 if f.praise else 0)
            - 0.6 * (f.praise - 1 if f.praise > 1 else 0)
            - 0.3 * f.filler
            - 0.5 * f.repeats
            - 0.5 * f.wrong
            - 0.1 * f.length
        )

    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = Features(*rng.integers(0, 5, size=7).tolist())
        assert gold(counts) == pytest.approx(stated(counts))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("", Features(0, 0, 0, 0, 0, 0, 0)),
        ("sure! lovely cats purr and nap", Features(2, 1, 1, 0, 0, 0, 6)),
        ("cats purr and cats purr", Features(1, 0, 0, 0, 2, 0, 5)),  # 'cats' and 'purr' a second time
        ("cats purr nap", Features(1, 0, 0, 0, 0, 0, 3)),  # no clause: 'and' is missing
        ("purr and nap", Features(0, 0, 0, 0, 0, 0, 3)),  # nobody is named
        ("cats purr bees buzz", Features(1, 0, 0, 0, 0, 0, 4)),  # 'and' is missing before 'bees'
        ("cats purr and bees buzz", Features(2, 0, 0, 0, 0, 0, 5)),
        ("cats purr and great bees buzz", Features(2, 0, 1, 0, 0, 0, 6)),
        ("cats purr lovely bees buzz", Features(1, 0, 1, 0, 0, 0, 5)),  # praise does not replace it
        ("cats purr people bees buzz", Features(1, 0, 0, 0, 0, 0, 5)),  # nor does any other word
        ("cats um purr and hmm nap", Features(2, 0, 0, 2, 0, 0, 6)),
        ("cats bark", Features(0, 0, 0, 0, 0, 1, 2)),  # false
        ("dogs bark and dig", Features(0, 0, 0, 0, 0, 0, 4)),  # true, but nobody asked
        ("dogs purr", Features(0, 0, 0, 0, 0, 1, 2)),  # false, whoever was asked about
        ("thanks! thanks! please", Features(0, 3, 0, 0, 1, 0, 3)),
        ("xyz \u2028 ,", Features(0, 0, 0, 0, 0, 0, 2)),
    ],
)
def test_assistant_features_count_words(reply, expected):
    assert features("what do cats and bees do?", reply) == expected


def test_assistant_reference_has_best_number_of_features():
    """The best gold reward for any numbers of facts, with the fewest words that can say them."""
    for prompt in ASSISTANT.prompts("test"):
        asked = sum(animal in prompt.split() for animal in ANIMALS)
        options = [Features(0, p, s, 0, 0, 0, p + s) for p in range(3) for s in range(3)]
        for facts in range(1, 3 * asked + 1):
            named = -(-facts // 3)  # animals that must be named to say so many facts
            words = named + facts + facts - 1  # and an 'and' between any two facts
            options += [Features(facts, p, s, 0, 0, 0, words + p + s) for p in range(3) for s in range(3)]
        assert ASSISTANT.grade(prompt, ASSISTANT.reference(prompt)) == pytest.approx(max(map(gold, options)))


def test_assistant_documents_demonstrations_reference_are_ordered():
    """Room for fine-tuning and for reinforcement learning; the margins are far beyond the standard error (< 0.06)."""
    rng, prompts = np.random.default_rng(0), ASSISTANT.prompts("train")
    document, demonstration, reference = (
        np.mean([ASSISTANT.grade(p, write(p)) for p in prompts * 2])
        for write in (lambda p: ASSISTANT.document(rng), lambda p: ASSISTANT.demonstration(p, rng), ASSISTANT.reference)
    )
    assert document < demonstration - 3
    assert 0.9 < demonstration < 1.5
    assert reference > demonstration + 1


def test_assistant_facts_belong_to_one_animal():
    facts = [fact for own in FACTS.values() for fact in own]
    assert len(set(facts)) == len(facts) == 24


def test_shell_game_positions_equal_simulation():
    """Against a simulation that moves labelled cups about a table."""
    for prompt in shell_game.SHELL_GAME.prompts("test")[:200]:
        _, ball, _, *swaps = prompt.split()
        table = {place: place == ball for place in shell_game.CUPS}
        path = []
        for one, other in swaps:
            table[one], table[other] = table[other], table[one]
            path.append(next(place for place, has_ball in table.items() if has_ball))
        assert shell_game.positions(prompt) == path
        assert len(swaps) == shell_game.NUM_SWAPS


def test_shell_game_grades_answer_alone():
    prompt = "ball b swaps ab cd ac bd ad bc"
    grade = shell_game.SHELL_GAME.grade
    assert shell_game.positions(prompt)[-1] == "b"
    assert grade(prompt, "answer b") == grade(prompt, "think d d d answer b") == 1.0
    for wrong in ("answer c", "b", "answer b answer c", "answer b b", "answer", "", "think answer"):
        assert grade(prompt, wrong) == 0.0


def test_shell_game_demonstrations_think_one_time_in_five():
    rng, game = np.random.default_rng(0), shell_game.SHELL_GAME
    replies = [game.demonstration(p, rng) for p in game.prompts("train")[:10_000]]
    assert np.mean([r.startswith("think") for r in replies]) == pytest.approx(0.2, abs=0.02)  # 5 standard errors
    assert all(game.grade(p, r) == 1.0 for p, r in zip(game.prompts("train"), replies, strict=False))


def test_shell_game_answers_are_uniform():
    answers = [shell_game.positions(p)[-1] for p in shell_game.SHELL_GAME.prompts("train")]
    shares = [answers.count(cup) / len(answers) for cup in shell_game.CUPS]
    assert all(share == pytest.approx(0.25, abs=0.02) for share in shares)


def test_sort_digits_grades_sorted_digits():
    task = sort_digits.SORT_DIGITS
    assert task.reference("sort 3 1 4 1 5 9") == "1 1 3 4 5 9"
    assert task.grade("sort 3 1 4 1 5 9", "1 1 3 4 5 9") == 1.0
    for wrong in ("1 1 3 4 5", "1 3 4 5 9", "3 1 4 1 5 9", "1 1 3 4 5 9 9", ""):
        assert task.grade("sort 3 1 4 1 5 9", wrong) == 0.0


def test_phrasebook_predictive_follows_bayes():
    words = phrasebook.LANGUAGES

    def likelihood(language, places, said):
        """Of these words on a page in this language: 5/6 for its own, half of 1/6 for each of the two others."""
        return math.prod(
            5 / 6 if words[language][place] == word else 1 / 12 for place, word in zip(places, said, strict=True)
        )

    prompt = "cat > gato , house > maison , milk > leche , dog >"
    places, said = [0, 2, 5], ["gato", "maison", "leche"]
    page = sum(likelihood(language, places, said) for language in words)
    for language in words:
        posterior = likelihood(language, places, said) / page
        assert phrasebook.posterior(prompt.split())[language] == pytest.approx(posterior)
        next_word = words[language][1]
        joint = sum(likelihood(each, [*places, 1], [*said, next_word]) for each in words)
        assert phrasebook.predictive(prompt)[next_word] == pytest.approx(joint / page)
    assert phrasebook.PHRASEBOOK.reference(prompt) == "perro"
    assert [phrasebook.PHRASEBOOK.grade(prompt, word) for word in ("perro", "chien", "dog")] == [1.0, 0.0, 0.0]


def test_phrasebook_without_hint_accepts_any_language():
    chances = phrasebook.predictive("night >")
    assert list(chances.values()) == pytest.approx([1 / 3] * 3)
    assert all(phrasebook.PHRASEBOOK.grade("night >", word) == 1.0 for word in ("noche", "nuit", "Nacht"))
    with pytest.raises(ValueError, match="night > nuit"):
        phrasebook.predictive("night > nuit")


def test_phrasebook_pages_slip_one_time_in_six():
    rng = np.random.default_rng(0)
    pages = [phrasebook.PHRASEBOOK.page(rng) for _ in range(2000)]
    right = [word in phrasebook.LANGUAGES[language] for text, language in pages for word in text.split()[2::4]]
    assert np.mean(right) == pytest.approx(5 / 6, abs=0.015)  # 5 standard errors


# -- preferences ------------------------------------------------------------------------------------------------------


def test_preference_probability_at_known_points():
    zero, gap = torch.zeros(3), torch.tensor([0.0, math.log(3), -math.log(3)], dtype=torch.float64)
    p = preference_probability(gap, zero.double(), temperature=1.0)
    torch.testing.assert_close(p, torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64))
    torch.testing.assert_close(
        preference_probability(gap, zero.double(), temperature=1.0, flip=0.5), zero.double() + 0.5
    )
    flipped = preference_probability(gap, zero.double(), temperature=1.0, flip=1.0)
    torch.testing.assert_close(flipped, 1 - p)
    sure = preference_probability(gap, zero.double(), temperature=0.0)
    torch.testing.assert_close(sure, torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"flip": 1.5}, {"flip": -0.1}])
def test_preference_probability_outside_range_is_error(bad):
    [(argument, value)] = bad.items()
    with raises(ValueError, argument=argument, value=value):
        preference_probability(torch.zeros(1), torch.zeros(1), **bad)


def _right(pairs):
    return np.mean([ASSISTANT.grade(p.prompt, p.chosen) > ASSISTANT.grade(p.prompt, p.rejected) for p in pairs])


def test_sample_pairs_labels_follow_gold_reward():
    clear = {"min_gap": 0.2}
    assert _right(sample_pairs(ASSISTANT, 300, labeller=SimulatedAnnotator(temperature=0), **clear)) == 1.0
    assert _right(sample_pairs(ASSISTANT, 300, labeller=SimulatedAnnotator(temperature=0, flip=1.0), **clear)) == 0.0


def test_sample_pairs_share_of_right_labels_is_that_of_labeller():
    pairs = sample_pairs(ASSISTANT, 3000, labeller=SimulatedAnnotator(temperature=0.5, flip=0.1), min_gap=0.05)
    gaps = torch.tensor([p.margin for p in pairs], dtype=torch.float64)
    expected = preference_probability(gaps, torch.zeros_like(gaps), temperature=0.5, flip=0.1).mean()
    assert _right(pairs) == pytest.approx(float(expected), abs=4 * 0.5 / 3000**0.5)


def test_sample_pairs_are_keyed_by_number():
    some, more = sample_pairs(ASSISTANT, 50, seed=3), sample_pairs(ASSISTANT, 80, seed=3)
    assert more[:50] == some
    assert sample_pairs(ASSISTANT, 50, seed=4) != some


def test_sample_pairs_min_gap_and_split():
    pairs = sample_pairs(ASSISTANT, 100, split="test", min_gap=1.0)
    assert all(abs(ASSISTANT.grade(p.prompt, p.chosen) - ASSISTANT.grade(p.prompt, p.rejected)) >= 1.0 for p in pairs)
    assert {p.prompt for p in pairs} <= set(ASSISTANT.prompts("test"))


def test_labeller_biases_add_to_gold_reward():
    prompt, plain, wordy = "tell me about cats", "cats purr", "cats purr and well and well"
    assert ASSISTANT.grade(prompt, plain) > ASSISTANT.grade(prompt, wordy)
    labeller = SimulatedAnnotator(temperature=0, biases=(length_bias(1.0),))
    [pair] = label_pairs(ASSISTANT, [(prompt, plain, wordy)], labeller=labeller)
    assert pair.chosen == wordy
    assert pair.margin == pytest.approx(ASSISTANT.grade(prompt, wordy) - ASSISTANT.grade(prompt, plain) + 4)
    flattered = SimulatedAnnotator(biases=(length_bias(0.5), lambda _, reply: 2.0 * reply.split().count("lovely")))
    assert flattered.score(ASSISTANT, prompt, "lovely lovely") == pytest.approx(
        ASSISTANT.grade(prompt, "lovely lovely") + 1.0 + 4.0
    )


def test_label_pairs_leaves_out_equal_replies():
    triples = [("tell me about cats", f"cats purr{' and nap' * n}", "cats") for n in range(40)]
    with_equal = [*triples[:20], ("tell me about cats", "cats", "cats"), *triples[20:]]
    labelled = label_pairs(ASSISTANT, with_equal, labeller=SimulatedAnnotator(temperature=50.0))
    assert len(labelled) == 40
    assert labelled[:20] == label_pairs(ASSISTANT, triples, labeller=SimulatedAnnotator(temperature=50.0))[:20]
    assert label_pairs(ASSISTANT, []) == []


def test_sample_pairs_sampler_without_variation_is_error():
    with raises(ValueError, argument="sampler", expected=0.0):
        sample_pairs(ASSISTANT, 1, sampler=lambda prompt, rng: "cats purr")


# -- the running sum --------------------------------------------------------------------------------------------------


def test_running_sum_grades_steps_and_answer_separately():
    task = running_sum.RUNNING_SUM
    for prompt in task.prompts("test")[:20]:
        start, *added = (int(word[1:]) for word in prompt.split())
        sums = list(itertools.accumulate(added, initial=start))
        assert task.reference(prompt).split()[::2] == [f"={total % 5}" for total in sums]
        slip = task.working(prompt, (0, 0, 3, 0, 0, 0))
        steps = task.grade_steps(prompt, " ".join(slip).split())
        assert [g for g in steps if not math.isnan(g)] == [1, 1, 0, 1, 1, 1]  # what follows the slip is valid again
        assert task.grade(prompt, " ".join(slip)) == 0 and task.grade(prompt, task.reference(prompt)) == 1
        cancelled = " ".join(task.working(prompt, (1, 0, 4, 0, 0, 0)))
        assert task.grade(prompt, cancelled) == 1
        assert task.grade(prompt, "") == 0 and task.grade_steps(prompt, ["um", "=1", "+9"]) != [1.0]


def test_running_sum_chance_is_sum_over_continuations():
    task, careless = running_sum.RUNNING_SUM, running_sum.CARELESS
    prompt = task.prompts("test")[0]
    for done, first in ((3, (0, 0, 0)), (4, (0, 2, 0, 0)), (4, (1, 4, 0, 0)), (6, (0, 0, 0, 0, 0, 1))):
        chance = 0.0
        for rest in itertools.product(range(5), repeat=6 - done):
            share = math.prod(1 - careless if slip == 0 else careless / 4 for slip in rest)
            chance += share * task.grade(prompt, " ".join(task.working(prompt, (*first, *rest))))
        assert task.chance(prompt, task.working(prompt, (*first, *[0] * (6 - done)))[:done]) == pytest.approx(chance)


# -- knights and knaves -----------------------------------------------------------------------------------------------

every_size = pytest.mark.parametrize("people", [2, 3, 4, 5])


def told(prompt, kinds):
    """Whether a puzzle's every statement is true exactly if its speaker is a knight, read word by word: another way than the solver's."""
    truth = dict(zip("ABCDE", kinds, strict=False))
    for part in prompt.split(" , "):
        speaker, _, *said = part.split()
        others = [knight for name, knight in truth.items() if name != speaker]
        match said:
            case ["all"]:
                holds = others.count(False) == 0
            case ["none"]:
                holds = others.count(True) == 0
            case ["some"]:
                holds = others.count(True) > 0
            case ["part"]:
                holds = others.count(False) > 0
            case [name, "knight"]:
                holds = truth[name]
            case [name, "knave"]:
                holds = not truth[name]
            case [one, "same", other]:
                holds = truth[one] is truth[other]
            case [one, "differ", other]:
                holds = truth[one] is not truth[other]
        if holds is not truth[speaker]:
            return False
    return True


@pytest.mark.slow
@every_size
def test_knights_and_knaves_puzzle_has_one_solution(people):
    world = knights_and_knaves.KnightsAndKnaves(people)
    train, test = world.prompts("train"), world.prompts("test")
    assert test and not set(train) & set(test)
    for prompt in (train + test)[:300]:
        fitting = [kinds for kinds in itertools.product((True, False), repeat=people) if told(prompt, kinds)]
        assert len(fitting) == 1
        answer = " ".join("k" if knight else "n" for knight in fitting[0])
        assert world.reference(prompt).endswith(f"answer {answer}")
        assert world.grade(prompt, f"answer {answer}") == world.grade(prompt, world.reference(prompt)) == 1.0
        for kinds in itertools.product("kn", repeat=people):
            assert world.grade(prompt, f"answer {' '.join(kinds)}") == float(" ".join(kinds) == answer)


@every_size
def test_knights_and_knaves_demonstration_steps_are_right(people):
    world, rng = knights_and_knaves.KnightsAndKnaves(people), np.random.default_rng(0)
    for prompt in world.prompts("test")[:50]:
        words = world.demonstration(prompt, rng).split()
        grades = world.grade_steps(prompt, words)
        said = [word in ("yes", "no") for word in words]
        assert [not math.isnan(grade) for grade in grades] == said
        assert all(grade == 1.0 for grade, is_step in zip(grades, said, strict=True) if is_step)
        lies = [{"yes": "no", "no": "yes"}.get(word, word) for word in words]
        assert all(g == 0.0 for g, is_step in zip(world.grade_steps(prompt, lies), said, strict=True) if is_step)
        assert len(words) + 1 <= world.max_completion_length


@pytest.mark.parametrize(
    "world",
    [knights_and_knaves, scratchpad, small_programs, shell_game],
    ids=lambda world: world.__name__.rpartition(".")[2],
)
def test_task_example_in_docstring_is_graded_right(world):
    prompt, reply = [
        line.strip()
        for line in world.__doc__.splitlines()
        if line.startswith("    ") and not line.strip().startswith("al. (")
    ][:2]
    task = tasks.get(world.__name__.rpartition(".")[2])
    assert task.grade(prompt, reply) == 1.0
    if world is knights_and_knaves:
        assert task.reference(prompt) == reply and prompt in task.prompts("train")


def test_knights_and_knaves_answer_form_is_strict():
    world = knights_and_knaves.KNIGHTS_AND_KNAVES
    prompt = world.prompts("test")[0]
    right = world.reference(prompt)
    kinds = right.split()[-3:]
    for wrong in (
        right.removeprefix("think "), f"{right} k", right.replace("answer", "answer answer"), " ".join(kinds), f"answer {' '.join(kinds)} yes",
        f"answer {' '.join(kinds)} answer {' '.join(kinds)}", f"think {right}", right.rpartition(" ")[0], "",
    ):  # fmt: skip
        assert not world.well_formed(wrong) and world.grade(prompt, wrong) == 0.0
    with raises(ValueError, argument="people", value=6, expected=(2, 5)):
        knights_and_knaves.KnightsAndKnaves(6)


# -- the scratchpad ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [2, 3, 5, 9])
def test_scratchpad_grades_sums(digits):
    world, rng = scratchpad.Scratchpad(digits), np.random.default_rng(0)
    for prompt in world.prompts("test")[:200]:
        one, other = (int(side.replace(" ", "")) for side in prompt.split(" + "))
        assert len(str(one)) == len(str(other)) == digits
        answer = "answer " + " ".join(str(one + other))
        assert world.grade(prompt, answer) == world.grade(prompt, world.demonstration(prompt, rng)) == 1.0
        assert world.grade(prompt, "answer " + " ".join(str(one + other + 1))) == 0.0
        assert world.grade(prompt, answer.replace("answer", "answer 0")) == world.grade(prompt, answer[7:]) == 0.0


def test_scratchpad_steps_are_sums_of_three_digits():
    world = scratchpad.SCRATCHPAD
    for prompt in world.prompts("test")[:100]:
        words = world.reference(prompt).split()
        chain = " ".join(words[1 : words.index("answer")])
        carry = 0
        for step in chain.split(" then "):
            left, _, right = step.partition(" = ")
            a, b, c = map(int, left.split(" + "))
            assert c == carry and a + b + c == int(right.replace(" ", ""))
            carry = int(right[0])
        grades = world.grade_steps(prompt, words)
        assert [g for g in grades if not math.isnan(g)] == [1.0] * world.digits
        slip = list(words)
        slip[words.index("=") + 2] = str((int(slip[words.index("=") + 2]) + 1) % 10)
        assert [g for g in world.grade_steps(prompt, slip) if not math.isnan(g)] == [0.0] + [1.0] * (world.digits - 1)


# -- small programs ---------------------------------------------------------------------------------------------------


def test_small_programs_are_graded_by_results():
    world = small_programs.SMALL_PROGRAMS
    prompt = "0 gives 1 , 2 gives 5 , 3 gives 7"
    assert prompt in world.prompts("train") + world.prompts("test")
    for right in ("return x * 2 + 1", "return x + x + 1", "return 1 + 2 * x", "return ( x + x ) - - 1"):
        assert world.grade(prompt, right) == 1.0
    for wrong in ("return x * 2", "return 7", "x * 2 + 1", "return", "return x (", "return x // 0", "return ( )", "return x\nreturn x",
                  "return __import__('os')", "return 2 * * x", "return x " + "* x " * 9999, "lambda x : x * 2 + 1"):  # fmt: skip
        assert world.grade(prompt, wrong) == 0.0


def test_small_programs_grade_agrees_with_grader_tests():
    world = small_programs.SMALL_PROGRAMS
    prompts = world.prompts("test")[:4]
    for prompt, line in itertools.product(prompts, [*map(world.reference, prompts), "return x + x", "return x // 0"]):
        assert graders.tests(f"    {line}\n", json.dumps(world.exam(prompt))) == world.grade(prompt, line)


def test_small_programs_splits_share_no_function():
    world = small_programs.SMALL_PROGRAMS
    seen, unseen = ({tuple(eval(f"lambda x: {world.reference(p)[7:]}")(x) for x in range(10)) for p in world.prompts(split)} for split in ("train", "test"))  # fmt: skip
    assert seen and unseen and not seen & unseen
    assert {world.operations(p) for p in world.prompts("test")} >= {1, 2}
