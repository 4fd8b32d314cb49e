"""Whole optimizer steps here and in TRL on the same data: gradients by parameter name, after each step."""

import ast
import dataclasses
import functools
import importlib
import json
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import examples, tasks
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import batch_indices
from minirlhf.data.examples import TRAIN_ON, conversations
from minirlhf.data.loaders import Records
from minirlhf.data.records import Comparison, Conversation, Problem
from minirlhf.data.types import Rollout, pair
from minirlhf.feedback.rewards import task_problems
from minirlhf.models.classifiers import as_classifier
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers import rollouts
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import train_online
from minirlhf.trainers.reward import train_reward
from minirlhf.trainers.sft import LOSSES, SFTConfig, train_sft
from minirlhf_cli.export import scripts, write
from minirlhf_cli.export.hooks import adapted
from minirlhf_cli.export.mapped import RunSpec
from minirlhf_cli.files.sources import EMPTY, SFTSource, Source

WORLD = tasks.get("shell_game")
TOKENIZER = word_tokenizer(WORLD.words)
PROBLEMS = task_problems(WORLD, "train")[:100]  # of 20,000, which a trainer encodes: a rollout takes four
CONFIG = OnlineConfig(
    max_steps=1,
    batch_size=4,
    num_generations=4,
    max_completion_length=7,
    learning_rate=2e-3,
    max_grad_norm=1e9,
    seed=3,
)


@functools.cache
def folder():
    """A model that was taught a little, so that some replies end and some do not: TRL reads its reference from where it was saved."""
    path = tempfile.mkdtemp()
    model = tiny_model("nano", TOKENIZER, seed=0)
    rng = numpy_generator("bridge", 0)
    shown = [conversation(prompt, WORLD.demonstration(prompt, rng)) for prompt in WORLD.prompts("train")]
    config = SFTConfig(max_steps=40, batch_size=16, learning_rate=3e-3)
    train_sft(
        model, [encode(TOKENIZER, talk) for talk in shown], config, pad_token_id=TOKENIZER.pad_token_id, quiet=True
    )
    model.save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return path


def policy():
    """The same model for both, in float64."""
    return load_folder(folder(), dtype=torch.float64)[0].eval()


def spread(problems, completions):
    """Rewards of five sizes, decided by the text."""
    texts = [p.prompt[-1]["content"] + c for p, c in zip(problems, completions, strict=True)]
    return [(zlib.crc32(text.encode()) >> 8) % 5 / 4 for text in texts]


@contextmanager
def captured(model):
    """The gradients at every step of Adam, by name."""
    steps, real = [], (torch.optim.Adam.step, torch.optim.AdamW.step)

    def step(optimizer, *args, **options):
        steps.append({name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None})
        return real[0](optimizer, *args, **options)

    torch.optim.Adam.step = torch.optim.AdamW.step = step
    try:
        yield steps
    finally:
        torch.optim.Adam.step, torch.optim.AdamW.step = real


def apart(ours, theirs):
    """Distance of two gradients over the length of ours."""
    assert ours.keys() == theirs.keys()
    a, b = (torch.cat([grads[name].flatten() for name in sorted(ours)]) for grads in (ours, theirs))
    return float((a - b).norm() / a.norm())


def ours_online(recipe, monkeypatch):
    """Our gradients, and the rollout they were taken on."""
    kept: list[Rollout] = []

    def spy(*args, **options):
        kept.append(real(*args, **options))
        return kept[-1]

    real = rollouts.sample
    monkeypatch.setattr(rollouts, "sample", spy)
    model = policy()
    with captured(model) as steps:
        train_online(
            model,
            PROBLEMS,
            spread,
            recipe,
            CONFIG,
            tokenizer=TOKENIZER,
            ref_model=policy(),
            quiet=True,
        )
    return steps, kept[0]


def trainer_of(mapped):
    """The class of the trainer, that of its settings, and the trainer's name."""
    place, _, kind = mapped.trainer.rpartition(".")
    module = importlib.import_module(place)
    return getattr(module, kind), getattr(module, kind.replace("Trainer", "Config")), kind


def trl_online(mapped, rollout):
    """TRL's gradients on the same completions."""
    from datasets import Dataset

    base, config, kind = trainer_of(mapped)
    if mapped.advantage is not None:
        base = adapted(base, advantage=mapped.advantage, sample_filter=mapped.sample_filter)
    width = rollout.input_ids.shape[1] - rollout.mask.shape[1]
    said: dict[tuple[int, ...], list[list[int]]] = {}
    for i in range(len(rollout.mask)):
        prompt = tuple(rollout.input_ids[i, :width][rollout.attention_mask[i, :width].bool()].tolist())
        said.setdefault(prompt, []).append(rollout.completion_ids[i][rollout.mask[i]].tolist())

    class Told(base):  # says what was said here
        def _generate_single_turn(self, prompt_ids, *_):
            left = {prompt: list(replies) for prompt, replies in said.items()}
            found = [left[tuple(prompt)].pop(0) for prompt in prompt_ids]
            return found if kind == "RLOOTrainer" else (found, None)

    Told.__name__ = kind
    picked = [PROBLEMS[i] for i in batch_indices(len(PROBLEMS), CONFIG.batch_size, 0, CONFIG.seed)]

    def reward(prompts, completion_ids, **_):
        eos = TOKENIZER.eos_token_id
        texts = [TOKENIZER.decode(ids[:-1] if ids[-1] == eos else ids).strip() for ids in completion_ids]
        return spread([Problem(prompt) for prompt in prompts], texts)

    steps = mapped.options["num_iterations"] * mapped.options.get("steps_per_generation", 1)
    settings = config(
        output_dir=tempfile.mkdtemp(), max_steps=steps, num_generations=CONFIG.num_generations, temperature=CONFIG.temperature,
        per_device_train_batch_size=CONFIG.batch_size * CONFIG.num_generations // mapped.options.get("steps_per_generation", 1),
        max_completion_length=CONFIG.max_completion_length, learning_rate=CONFIG.learning_rate, max_grad_norm=CONFIG.max_grad_norm,
        lr_scheduler_type="constant", weight_decay=0.0, optim="adamw_torch", **BARE, shuffle_dataset=False,
        **{name: value for name, value in mapped.options.items() if value is not None},
    )  # fmt: skip
    data = Dataset.from_list([{"prompt": problem.prompt} for problem in picked])
    trainer = Told(model=policy(), reward_funcs=[reward], args=settings, train_dataset=data, processing_class=TOKENIZER)
    if getattr(trainer, "ref_model", None) is not None:  # TRL reads it in float32
        trainer.ref_model.double()
    with captured(trainer.model) as grads:
        trainer.train()
    return grads


BARE = {
    "bf16": False, "use_cpu": True, "gradient_checkpointing": False, "report_to": [], "save_strategy": "no",
    "logging_strategy": "no", "disable_tqdm": True, "seed": 3,
}  # fmt: skip


def pairs():
    """Prompts with a good reply and one of another length that has its words in another order."""
    rng = numpy_generator("bridge", 1)
    found = []
    for i, prompt in enumerate(WORLD.prompts("train")[:6]):
        good = WORLD.demonstration(prompt, rng)
        found.append((prompt, good, " ".join([*good.split()[::-1], *prompt.split()[: i % 3]])))
    return found


def ours_offline(recipe):
    """Our gradients of two steps on all pairs."""
    reply = lambda prompt, text: encode(TOKENIZER, conversation(prompt, text), first_turn=1)
    data = [pair(reply(prompt, good), reply(prompt, bad)) for prompt, good, bad in pairs()]
    config = OfflineConfig(max_steps=2, batch_size=len(data), learning_rate=1e-3, max_grad_norm=1e9)
    model = policy()
    with captured(model) as steps:
        train_offline(model, data, recipe, config, pad_token_id=TOKENIZER.pad_token_id, ref_model=policy(), quiet=True)
    return steps


def trl_offline(mapped):
    """TRL's, on the same pairs."""
    from datasets import Dataset

    base, config, kind = trainer_of(mapped)
    said = lambda role, text: [{"role": role, "content": text}]
    rows = [
        {"prompt": said("user", p), "chosen": said("assistant", good), "rejected": said("assistant", bad)}
        for p, good, bad in pairs()
    ]
    settings = config(
        output_dir=tempfile.mkdtemp(), max_steps=2, per_device_train_batch_size=len(rows), learning_rate=1e-3, max_grad_norm=1e9,
        lr_scheduler_type="constant", weight_decay=0.0, optim="adamw_torch", **BARE, **mapped.options,
    )  # fmt: skip
    needs = {"ref_model": policy()} if kind == "DPOTrainer" else {}
    trainer = base(
        model=policy(), args=settings, train_dataset=Dataset.from_list(rows), processing_class=TOKENIZER, **needs
    )
    with captured(trainer.model) as grads:
        trainer.train()
    return grads


# -- trainers without a recipe ------------------------------------------------------------------------------------

#: Conversations: of one reply, and of two, all of which are learned.
ONE = [Conversation(conversation(prompt, good), context=1) for prompt, good, _ in pairs()]
TWO = [Conversation(conversation(prompt, good, prompt, bad)) for prompt, good, bad in pairs()]
PAIRS = [
    Comparison(
        *([{"role": who, "content": text}] for who, text in zip(("user", "assistant", "assistant"), row, strict=True)),
        margin=0.3 * i,
    )
    for i, row in enumerate(pairs())
]
STEPS = {"max_steps": 2, "learning_rate": 1e-3, "max_grad_norm": 1e9}
#: The six conversations of :data:`TWO` in three rows of 80 tokens; a step learns from all of them.
PACKED = SFTConfig(batch_size=3, packing=True, max_length=80, **STEPS)


def exported(trainer, records, config, settings=EMPTY):
    """The options of the script that such a run becomes, and its rows."""
    told = RunSpec(trainer, (SFTSource if trainer == "sft" else Source)(out="x", data="d", **settings), config, None)
    records = write._learned(told.source, Records("made", "made", tuple(records))) if trainer == "sft" else records
    measured = write._measured(records, TOKENIZER, adapter=False, reference=False)
    measured = dataclasses.replace(measured, row=write._row_of(told, policy()))
    engine = write.ENGINES["trl"]
    text = scripts.for_trl(told, engine.mapped(told), measured)
    options = ast.literal_eval(
        text.partition("OPTIONS = ")[2].partition("\n\nworld")[0].replace(str(scripts.HALF), "False")
    )
    with tempfile.TemporaryDirectory() as place:
        write._lines(Path(place), records)
        rows = [json.loads(line) for line in Path(place, "data.jsonl").read_text().splitlines()]
    return options, rows


def ours_plain(trainer, records, config, settings=EMPTY):
    """Our gradients of two steps on all records."""
    source = SFTSource(out="x", **settings)
    found = Records("made", "made", tuple(records))
    model = policy() if trainer == "sft" else judge()
    with captured(model) as steps:
        if trainer == "sft":
            train_sft(
                model,
                conversations(TOKENIZER, found, TRAIN_ON[source.train_on]),
                config,
                pad_token_id=TOKENIZER.pad_token_id,
                quiet=True,
                of=LOSSES[source.loss_type],
            )
        else:
            train_reward(
                model, examples.pairs(TOKENIZER, found), config, pad_token_id=TOKENIZER.pad_token_id, quiet=True
            )
    return steps if trainer == "sft" else [as_theirs(step) for step in steps]


def judge():
    """A reward model on the policy, in float64."""
    return RewardModel.from_causal_lm(policy(), seed=1).double()


def as_theirs(gradients):
    """Under the names of the classifier, which has no bias."""
    names = {"head.weight": "score.weight"}
    return {
        names.get(name, name.replace("backbone.", "model.")): g for name, g in gradients.items() if name != "head.bias"
    }


def trl_plain(trainer, options, rows):
    """TRL's, as the exported script trains."""
    import trl
    from datasets import Dataset

    kind = {"sft": "SFT", "reward": "Reward"}[trainer]
    model = policy() if trainer == "sft" else as_classifier(judge(), TOKENIZER)[0]
    ignored = {"output_dir", "logging_steps", *BARE}
    settings = getattr(trl, f"{kind}Config")(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=len(rows), optim="adamw_torch", **BARE,
        **{name: value for name, value in options.items() if name not in ignored},
    )  # fmt: skip
    trained = getattr(trl, f"{kind}Trainer")(
        model=model, args=settings, train_dataset=Dataset.from_list(rows), processing_class=TOKENIZER
    )
    with captured(trained.model) as grads:
        trained.train()
    return grads
