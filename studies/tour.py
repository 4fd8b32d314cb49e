"""The tour over five seeds: ``python studies/tour.py`` writes ``studies/tour.json`` (about ten minutes on one core).

The settings of the tour were chosen on seeds 0 to 4; these five are others, so that the choice cannot flatter the result.
"""

from pathlib import Path

from minirlhf import evidence
from minirlhf.tour import stages

RESULT = Path(__file__).with_suffix(".json")
SEEDS = range(5, 10)


if __name__ == "__main__":
    evidence.run_study(
        lambda seed: stages.run(seed, say=lambda text: None, quiet=True).numbers(),
        RESULT,
        modules=["minirlhf.tour.stages"],
        first_seed=5,
    )
