"""Settings of every test run: one thread, no network, an empty cache, one random seed that a failure prints."""

import os
import secrets
import shutil
import tempfile

import pytest

# Workers of pytest-xdist are started by this process and inherit its environment, so all of them share what is set here.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("MINIRLHF_TEST_SEED", str(secrets.randbelow(2**31)))

import torch

torch.set_num_threads(1)

OWN_FOLDERS = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its own cache: the zoo trains each checkpoint once per run. ``MINIRLHF_CACHE`` keeps one between runs."""
    if "MINIRLHF_CACHE" not in os.environ:
        folder = tempfile.mkdtemp(prefix="minirlhf-tests-")
        config.stash[OWN_FOLDERS] = folder
        os.environ["MINIRLHF_CACHE"] = os.path.join(folder, "zoo")
        os.environ["HF_HOME"] = os.path.join(folder, "huggingface")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that cache; only the process that made it has it in its stash."""
    folder = config.stash.get(OWN_FOLDERS, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header() -> str:
    """How to repeat the random inputs of this run."""
    return f"MINIRLHF_TEST_SEED={os.environ['MINIRLHF_TEST_SEED']}"


@pytest.fixture(scope="session")
def fresh_seed() -> int:
    """A seed that differs in every run; set ``MINIRLHF_TEST_SEED`` to repeat one."""
    return int(os.environ["MINIRLHF_TEST_SEED"])


@pytest.fixture(scope="session")
def system_tool():
    """``system_tool("chromium")`` is its path. Without it a test skips, but fails in continuous integration."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            (pytest.fail if os.environ.get("MINIRLHF_CI") else pytest.skip)(f"needs {name}, which is not installed")
        return path

    return find
