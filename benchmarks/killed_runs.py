"""Killed and resumed: ``python benchmarks/killed_runs.py`` (three minutes on a core; ``--moments 2`` for a sample).

Each trainer runs once undisturbed. Then ten runs of it are killed (SIGKILL) at a random moment, resumed, killed again, and resumed
to the end: twenty moments. The last checkpoint and the metrics of each must be those of the undisturbed run, bit for bit. Runs are forked from this process, so that a moment falls into the run and not into the import of PyTorch.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from minirlhf import recipes
from minirlhf.core.folders import write_text_atomic
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import conversation, encode
from minirlhf.data.formats import Problem
from minirlhf.data.types import labelled, pair
from minirlhf.models import checkpoints
from minirlhf.models.heads import RewardModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

RESULT = Path(__file__).with_suffix(".json")
STEPS = 8


def _chats() -> tuple[object, object, Callable[..., object]]:
    tokenizer = word_tokenizer(("one", "two", "three", "go", "stop"))
    return tokenizer, tiny_model("nano", tokenizer, seed=3), lambda *texts: encode(tokenizer, conversation(*texts))


def _options(rate: float = 1e-2) -> dict:
    return {
        "max_steps": STEPS,
        "save_steps": 1,
        "warmup_steps": 2,
        "lr_scheduler_type": "cosine",
        "learning_rate": rate,
    }


def sft(run: dict) -> None:
    """Supervised fine-tuning."""
    tokenizer, model, chat = _chats()
    chats = [chat("go", "one two"), chat("stop", "stop"), chat("two", "two three")]
    train_sft(model, chats, SFTConfig(batch_size=2, **_options()), pad_token_id=0, tokenizer=tokenizer, **run)


def reward(run: dict) -> None:
    """A reward model."""
    tokenizer, model, chat = _chats()
    pairs = [pair(chat("go", "one"), chat("go", "two")), pair(chat("stop", "two"), chat("stop", "one"))]
    config = RewardConfig(batch_size=1, **_options())
    train_reward(RewardModel.from_causal_lm(model), pairs, config, pad_token_id=0, tokenizer=tokenizer, **run)


def _online(recipe: recipes.Recipe, run: dict) -> None:
    tokenizer, model, _ = _chats()
    problems = [Problem(conversation(text)) for text in ("go", "stop", "go one")]
    likes = lambda problems, texts: [float(text.split().count("two")) for text in texts]
    config = OnlineConfig(batch_size=2, num_generations=4, max_completion_length=4, **_options())
    train_online(model, problems, likes, recipe, config, tokenizer=tokenizer, **run)


def grpo(run: dict) -> None:
    """Online, without a critic."""
    _online(recipes.GRPO.with_(num_minibatches=2), run)


def ppo(run: dict) -> None:
    """Online, with a critic and several passes."""
    _online(recipes.PPO.with_(critic_warmup=2), run)


def dpo(run: dict) -> None:
    """Offline, pairs."""
    tokenizer, model, chat = _chats()
    pairs = [pair(chat("go", "one"), chat("go", "two")), pair(chat("stop", "two"), chat("stop", "one two"))]
    config = OfflineConfig(batch_size=1, **_options())
    train_offline(model, pairs, get_preference("dpo"), config, pad_token_id=0, tokenizer=tokenizer, **run)


def bco(run: dict) -> None:
    """Offline, single answers and a moving mean that goes from step to step."""
    tokenizer, model, chat = _chats()
    answers = [labelled(chat("go", word), word == "two") for word in ("one", "two", "three", "stop")]
    config = OfflineConfig(batch_size=2, **_options())
    train_offline(model, answers, get_preference("bco"), config, pad_token_id=0, tokenizer=tokenizer, **run)


TRAINERS = {f.__name__: f for f in (sft, reward, grpo, ppo, dpo, bco)}


def start(trainer: str, out: Path) -> int:
    """Fork a run, new or resumed as the folder asks for, and return its process id."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        try:
            TRAINERS[trainer]({"out": out, "resume": (out / "config.json").is_file(), "quiet": True})
            os._exit(0)
        except BaseException as problem:
            print(f"{trainer}: {type(problem).__name__}: {problem}", flush=True)
            os._exit(1)
    return child


def finish(child: int) -> int:
    """Wait for a run; its exit status, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def reached(out: Path) -> int:
    """The newest checkpoint of a run."""
    return max(checkpoints.steps(out), default=0)


def kill(child: int, out: Path, rng: np.random.Generator, step_time: float) -> bool:
    """SIGKILL to a run at a random moment of a random step that is still before it; False if it had ended by then."""
    target = int(rng.integers(reached(out), STEPS))
    while reached(out) < target:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    time.sleep(float(rng.uniform(0, step_time)))
    os.kill(child, signal.SIGKILL)
    return finish(child) == -signal.SIGKILL


def outcome(out: Path) -> dict[str, object]:
    """The bytes of the last checkpoint, and the metrics without times."""
    last = checkpoints.step_folder(out, STEPS)
    assert checkpoints.find_corruption(last) is None
    files = {str(p.relative_to(last)): p.read_bytes() for p in sorted(last.rglob("*.*"))}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {**files, "metrics": [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in rows]}


def trial(trainer: str, folder: Path, moments: int, seed: int) -> dict[str, int]:
    """Kill runs of one trainer at so many moments, two a run.

    Returns:
        How often a process was hit before its end, at how many distinct steps, and how many of the runs ended with the same bits.
    """
    rng = numpy_generator("kill", trainer, seed)
    began = time.perf_counter()
    TRAINERS[trainer]({"out": folder / "whole", "resume": False, "quiet": True})
    step_time = (time.perf_counter() - began) / STEPS
    wanted, alike, hits, where = outcome(folder / "whole"), 0, 0, set()
    runs = -(-moments // 2)
    for number in range(runs):
        out = folder / f"{number}"
        for _ in range(2):
            if reached(out) < STEPS:
                hits += kill(start(trainer, out), out, rng, step_time)
                where.add(reached(out))
        assert finish(start(trainer, out)) == 0
        alike += outcome(out) == wanted
        shutil.rmtree(out)
    return {"runs": runs, "killed": hits, "distinct_steps": len(where), "same_bits": alike}


def main() -> None:
    """Try every trainer, print a line each, and write the evidence of those that were tried in full."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=20, help="moments per trainer (default: 20)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the moments (default: random)")
    parser.add_argument("--trainers", nargs="*", choices=TRAINERS, default=list(TRAINERS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    failed = []
    for trainer in args.trainers:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["MINIRLHF_CACHE"] = f"{folder}/cache"
            found = trial(trainer, Path(folder), args.moments, args.seed)
        print(f"{trainer:8} {json.dumps(found)} seed {args.seed}", flush=True)
        if found["same_bits"] < found["runs"]:
            failed.append(trainer)
        elif args.moments >= 20:
            known = json.loads(RESULT.read_text(encoding="utf-8"))["trainers"] if RESULT.is_file() else {}
            known[trainer] = {**found, "seed": args.seed}
            evidence = {"command": "python benchmarks/killed_runs.py", "trainers": known}
            write_text_atomic(RESULT, json.dumps(evidence, indent=1) + "\n")
    if failed:
        raise SystemExit(f"did not end with the same bits: {', '.join(failed)}")


if __name__ == "__main__":
    main()
