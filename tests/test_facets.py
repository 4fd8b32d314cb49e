"""The two halves of the gold reward."""

import pytest

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import ASSISTANT, features, gold
from minirlhf.feedback.facets import content, facet_reward, manners


def test_facets_content_and_manners_add_up_to_gold():
    rng = numpy_generator("facets")
    for prompt in ASSISTANT.prompts("test"):
        for reply in (ASSISTANT.demonstration(prompt, rng), ASSISTANT.document(rng), ASSISTANT.reference(prompt), ""):
            counts = features(prompt, reply)
            assert content(counts) + manners(counts) == pytest.approx(gold(counts))


def test_facet_reward_of_content_and_manners():
    problem = Problem([{"role": "user", "content": "tell me about cats"}])
    replies = ["cats purr", "sure! lovely cats purr", "um cats purr"]
    said = facet_reward(content)([problem] * 3, replies)
    assert said == pytest.approx([1.0, 0.8, 0.6])  # 1.2 for a fact, 0.1 off per word, 0.3 per um
    assert facet_reward(manners)([problem] * 3, replies) == pytest.approx([0.0, 1.3, 0.0])
