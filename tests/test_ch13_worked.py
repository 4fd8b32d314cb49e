"""Numbers of chapter 13 and its appendix that a reader can follow by hand."""

import pytest
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.equations import advantages
from minirlhf_course.chapters.ch13_group_relative_methods import equations as ch13
from minirlhf_course.chapters.ch13_group_relative_methods import two_worlds


def test_group_size_example_has_a_flat_minimum_at_eight():
    v, s, w = (torch.tensor(x, dtype=torch.float64) for x in (1.0, 20.0, 49.0))
    found = [
        64 * float(ch13.group_gradient_variance(v, s, w, num_prompts=64 // size, num_generations=size))
        for size in (2, 4, 8, 16, 32)
    ]
    assert found == pytest.approx([71, 40.3, 35, 39.3, 53.6], abs=0.05)
    assert float(ch13.best_group_size(v, w)) == 8


def test_gdpo_example_separates_right_from_well_formed():
    right, formed = torch.tensor([[1.0, 0, 0, 0]]).double(), torch.tensor([[0, 1.0, 1, 0]]).double()
    summed = advantages.group_zscore(right + formed, eps=0.0)[0].tolist()
    assert summed == pytest.approx([0.5, 0.5, 0.5, -1.5])
    one_by_one = advantages.group_zscore(right, eps=0.0) + advantages.group_zscore(formed, eps=0.0)
    assert one_by_one[0].tolist() == pytest.approx([0.634, 0.366, 0.366, -1.366], abs=5e-4)


def test_hesitation_of_the_demonstrations_has_the_mean_that_the_chapter_says():
    task, rng = two_worlds.HesitantGame(), numpy_generator("hesitation", "test")
    prompt = task.prompts("train")[0]
    words = [task.demonstration(prompt, rng).split().count("hm") for _ in range(4_000)]
    assert sum(words) / len(words) == pytest.approx(9.4, abs=0.4)  # a standard error is 0.13
