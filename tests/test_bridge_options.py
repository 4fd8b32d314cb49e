"""verl and OpenRLHF, which we never start: scripts whose options exist, graders that are called as those engines call them, data in their
format, and models of theirs that open here.

The names of their options are those of a version, in ``samples/engine_options.json``.
"""

import asyncio
import contextlib
import importlib.util
import inspect
import itertools
import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from facts import raises
from patience import finished

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.equations import advantages
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.models import adapters, checkpoints
from minirlhf.models.classifiers import as_classifier
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.recipes.parts import (
    GAE,
    GroupAdvantage,
    KLInLoss,
    KLInReward,
    RewardToGo,
    gfpo_shortest,
    masked_importance,
    penalize_length,
    penalize_overlong,
    sequence_importance,
)
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli import dispatch, main
from minirlhf_cli.export import tables
from minirlhf_cli.export.mapped import NoCounterpartError, RunSpec
from minirlhf_cli.export.scripts import SCRIPTS, SETTINGS, Data
from minirlhf_cli.export.write import ENGINES, differences
from minirlhf_cli.files.sources import OfflineSource, OnlineSource, RewardSource, SFTSource, Source

KNOWN = json.loads((Path(__file__).parent / "samples/engine_options.json").read_text(encoding="utf-8"))
ENGINE = ("verl", "openrlhf")
DATA = Data(rows=40, prompt=12, whole=30)
SHAPED = {"shape": (penalize_overlong,), "max_completion_length": 32}
#: Beside the rows: the branches of the maps that no row takes.
MORE = {
    "k1 in the loss": recipes.DR_GRPO.with_(weights=recipes.DAPO.update.weights, kl=KLInLoss(k1)),
    "k2 in the loss": recipes.GRPO.with_(kl=KLInLoss(k2)),
    "k3 in the reward": recipes.GRPO.with_(kl=KLInReward(k3)),
    "eps of verl": recipes.GRPO.with_(eps=1e-6),
    "a second bound": recipes.GRPO.with_(delta=3.0),
    "a bound of CISPO below": recipes.CISPO.with_(epsilon=0.5),
    "icepop": recipes.GRPO.with_(corrections=(masked_importance,)),
    "whole replies' weights": recipes.GRPO.with_(corrections=(sequence_importance,)),
    "overlong": recipes.GRPO.with_(**SHAPED),
    "a critic's warm-up": recipes.PPO.with_(critic_warmup=3),
    "without whitening": recipes.REINFORCE_PP.with_(credit=RewardToGo(whiten_advantages=False)),
}
RECIPES = {**recipes.RECIPES, **MORE}


def mapped(engine):
    """Every recipe that goes, with what it becomes."""
    for name, recipe in RECIPES.items():
        try:
            yield name, recipe, ENGINES[engine].online(recipe.resolved(max_completion_length=32))
        except NoCounterpartError:
            continue


def online(recipe, **settings):
    config = OnlineConfig(**{"batch_size": 16, "num_generations": 4, "warmup_steps": 2, **settings})
    return RunSpec("online", OnlineSource(out="x", task="shell_game"), config, recipe)


def words_of(engine, script):
    """Program, module, and the options of the command in a script."""
    command = script[script.index('cd "$HERE"\n') + len('cd "$HERE"\n') :].replace('"$@"', "")
    words = shlex.split(command.replace("\\\n", " "))
    module = next(word for word in words if word in KNOWN[engine] or word.startswith(("verl.", "openrlhf.")))
    return module, words[words.index(module) + 1 :]


def strange(engine, script):
    """The options of a script that the engine does not have, or that it would not take so."""
    module, words = words_of(engine, script)
    known, values = KNOWN[engine][module], KNOWN[engine]["values"]
    if engine == "verl":
        pairs = [word.split("=", 1) for word in words]
        missing = [name for name, _ in pairs if (name.removeprefix("+") in known) == name.startswith("+")]
        return missing + [f"{name}={value}" for name, value in pairs if value not in values.get(name, [value])]
    found = []
    for name, given in ((part[0], part[1:]) for part in _options(words)):
        takes = known.get(name)
        right = takes is not None and (len(given) == takes if isinstance(takes, int) else given)
        found += (
            [] if right and all(value in values.get(name, given) for value in given) else [" ".join([name, *given])]
        )
    return found


def _options(words):
    """``[name, value, ...]`` of every option; a negative number is a value for argparse only if written as one."""
    starts = [i for i, word in enumerate(words) if word.startswith("-") and not word.removeprefix("-").isdigit()]
    return [[words[a].removeprefix("--"), *words[a + 1 : b]] for a, b in itertools.pairwise([*starts, len(words)])]


@pytest.mark.parametrize("engine", ENGINE)
def test_bridge_versions_are_those_of_the_names(engine):
    assert ENGINES[engine].version == KNOWN[engine]["version"]


@pytest.mark.parametrize("engine", ENGINE)
def test_bridge_scripts_parse_and_have_known_options(engine, tmp_path):
    scripts = []
    for name, recipe, found in mapped(engine):
        told = online(recipe.resolved(max_completion_length=32))
        scripts.append((name, SCRIPTS[engine][1](told, found, DATA)))
    assert len(scripts) >= 12
    for name, script in scripts:
        file = tmp_path / "train.sh"
        file.write_text(script)
        done = subprocess.run(["bash", "-n", file], capture_output=True, text=True)
        assert done.returncode == 0, (name, done.stderr)
        assert strange(engine, script) == [], name


@pytest.mark.parametrize(
    ("engine", "trainer", "config"),
    [
        ("verl", "sft", SFTConfig()),
        ("openrlhf", "sft", SFTConfig(warmup_steps=3)),
        ("openrlhf", "reward", RewardConfig()),
        ("openrlhf", "dpo", OfflineConfig()),
        ("openrlhf", "cdpo", OfflineConfig(lr_scheduler_type="cosine")),
        ("openrlhf", "ipo", OfflineConfig()),
        ("openrlhf", "dpo_nll", OfflineConfig()),
    ],
)
def test_bridge_scripts_of_trainers_without_recipe_have_known_options(engine, trainer, config):
    source = SFTSource if trainer == "sft" else Source
    told = RunSpec(trainer, source(out="x", lora_r=8), config, PREFERENCES.get(trainer))
    script = SCRIPTS[engine][1](told, ENGINES[engine].mapped(told), DATA)
    assert strange(engine, script) == []


@pytest.mark.parametrize("engine", ENGINE)
def test_bridge_strange_sees_a_wrong_name(engine):
    told = online(recipes.GRPO)
    found = ENGINES[engine].online(recipes.GRPO)
    script = SCRIPTS[engine][1]
    wrong = {"verl": {"algorithm.adv_estimater": "grpo"}, "openrlhf": {"algo.advantage.estimater": "rloo"}}[engine]
    bad = {"verl": {"algorithm.adv_estimator": "gprpo"}, "openrlhf": {"algo.advantage.estimator": "gprpo"}}[engine]
    many = {"verl": {"+algorithm.gamma": 1.0}, "openrlhf": {"reward.clip_range": (1, 2, 3)}}[engine]
    for more in (wrong, bad, many):
        assert len(strange(engine, script(told, replace(found, options={**found.options, **more}), DATA))) == 1


def test_bridge_scripts_have_settings_under_their_names():
    told = online(recipes.GRPO, learning_rate=3e-7, temperature=0.7, top_p=0.9, max_grad_norm=0.3, weight_decay=0.02)
    asked = {"learning_rate": "3e-07", "temperature": "0.7", "top_p": "0.9", "max_grad_norm": "0.3", "weight_decay": "0.02",
             "batch_size": "16", "num_generations": "4", "max_completion_length": "32"}  # fmt: skip
    _, words = words_of("verl", SCRIPTS["verl"][1](told, ENGINES["verl"].mapped(told), DATA))
    given = dict(word.split("=", 1) for word in words)
    assert {name: given[SETTINGS[name][1]] for name in asked} == asked
    _, words = words_of("openrlhf", SCRIPTS["openrlhf"][1](told, ENGINES["openrlhf"].mapped(told), DATA))
    given = {name: values[0] if values else "" for name, *values in _options(words)}
    assert {name: given[SETTINGS[name][2]] for name in asked} == asked
    assert given["actor.lr_scheduler"] == "constant_with_warmup"
    assert float(given["actor.lr_warmup_ratio"]) == pytest.approx(2 / 100)


@pytest.mark.parametrize(
    ("engine", "recipe", "argument", "value"),
    [
        ("verl", recipes.VAPO.with_(positive_coef=0.0), "credit", "gae"),
        ("verl", recipes.PPO.with_(shared=True), "credit", "gae"),
        ("verl", recipes.LUSPO, "objective", "luspo"),
        ("verl", recipes.GFPO, "sample_filter", None),
        ("verl", recipes.BNPO, "advantage", "bnpo"),
        ("verl", recipes.MASKED_GRPO, "corrections", "off_policy_sequence_mask"),
        ("verl", recipes.GSPO.with_(delta=1.1), "delta", 1.1),
        ("verl", recipes.SAPO.with_(per_sequence=True), "per_sequence", True),
        ("verl", recipes.GRPO.with_(shape=(penalize_length,)), "shape", "penalize_length"),
        ("openrlhf", recipes.DR_GRPO, "weights", "fixed_length"),
        ("openrlhf", recipes.CISPO, "objective", "cispo"),
        ("openrlhf", recipes.REMAX, "credit", recipes.REMAX.credit.title),
        ("openrlhf", recipes.LITE_PPO, "advantage", "lite_ppo"),
        ("openrlhf", recipes.GRPO.with_(corrections=(sequence_importance,)), "corrections", "sequence_importance"),
        ("openrlhf", recipes.GSPO.with_(corrections=(masked_importance,)), "corrections", "masked_importance"),
        ("openrlhf", recipes.GFPO.with_(sample_filter=gfpo_shortest), "sample_filter", None),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_bridge_engine_refuses_what_has_no_counterpart(engine, recipe, argument, value):
    with raises(NoCounterpartError, argument=argument, value=value):
        ENGINES[engine].online(recipe)


@pytest.mark.parametrize("engine", ENGINE)
def test_bridge_engine_refuses_settings_without_a_name(engine):
    with raises(NoCounterpartError, argument="staleness", value=2):
        ENGINES[engine].online(recipes.GRPO, staleness=2)
    asked = online(recipes.GRPO, min_p=0.1)
    with raises(NoCounterpartError, argument="min_p", value=0.1):
        SCRIPTS[engine][1](asked, ENGINES[engine].mapped(asked), DATA)
    odd = online(recipes.GSPO, batch_size=7, num_generations=3)
    with raises(UserError, argument="num_minibatches", value=4):
        SCRIPTS[engine][1](odd, ENGINES[engine].mapped(odd), DATA)
    with raises(NoCounterpartError, argument="loss", value="hinge"):
        ENGINES[engine].offline(PREFERENCES["hinge"])


def test_bridge_credit_goes_to_the_estimator_that_does_it():
    of = lambda engine, name, credit: ENGINES[engine].online(recipes.GRPO.with_(credit=credit)).options[name]
    said = [
        GroupAdvantage(advantages.group_center),
        GroupAdvantage(advantages.leave_one_out),
        RewardToGo(gamma=0.9),
        GAE(lam=0.9),
    ]
    assert [of("verl", "algorithm.adv_estimator", c) for c in said] == ["grpo", "rloo", "reinforce_plus_plus", "gae"]
    assert [of("openrlhf", "algo.advantage.estimator", c) for c in said] == ["dr_grpo", "rloo", "reinforce", "gae"]
    assert of("verl", "algorithm.norm_adv_by_std_in_grpo", said[0]) is False
    assert of("verl", "algorithm.gamma", said[2]) == of("openrlhf", "algo.advantage.gamma", said[2]) == 0.9
    assert of("verl", "algorithm.lam", said[3]) == of("openrlhf", "algo.advantage.lambd", said[3]) == 0.9


# -- their own parsers -----------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
INSTALLED = ROOT / "build/engines"
#: Options that verl demands and then does not use: its critic divides a minibatch by tokens.
ONLY_DEMANDED = {"critic.ppo_micro_batch_size_per_gpu"}


def asked(engine, name, script, folder):
    """A command of a script, as the engine's parser gets it from the shell."""
    module, words = words_of(engine, script)
    for variable, value in (("$HERE", str(folder)), ("$((8 / GPUS))", "8"), ("${MICRO:-1}", "1"), ("$GPUS", "1")):
        words = [word.replace(variable, value) for word in words]
    names = [word.split("=", 1)[0].lstrip("+") for word in words]
    if engine == "openrlhf":
        names = [name for name, *_ in _options(words)]
    return {"module": module, "name": name, "words": words, "options": names}


def answers(commands):
    """What the engines' parsers make of these commands, and the options that none of their code reads."""
    if not (INSTALLED / "verl").is_dir() or not (INSTALLED / "openrlhf").is_dir():
        pytest.skip("verl and OpenRLHF are not in build/engines; make engines puts their sources there")
    script = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "engine_parsers.py"), str(INSTALLED)]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = finished(script, usually=25, input=json.dumps(commands), stderr=subprocess.PIPE, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index('{"cases"') :])


@pytest.mark.release
def test_export_options_are_accepted_and_read_by_the_engines(runs):
    commands = []
    for engine in ENGINE:
        made = {
            name: (online(recipe.resolved(max_completion_length=32)), found) for name, recipe, found in mapped(engine)
        }
        made["lora"] = (replace(made["grpo"][0], source=OnlineSource(out="x", task="t", lora_r=8)), made["grpo"][1])
        for kind, config in (("sft", SFTConfig(warmup_steps=3)), ("reward", RewardConfig()), ("dpo", OfflineConfig()),
                             ("cdpo", OfflineConfig(lr_scheduler_type="cosine")), ("ipo", OfflineConfig()), ("dpo_nll", OfflineConfig())):  # fmt: skip
            if engine == "openrlhf" or kind == "sft":
                source = SFTSource if kind == "sft" else Source
                told = RunSpec(kind, source(out="x", lora_r=8), config, PREFERENCES.get(kind))
                made[kind] = (told, ENGINES[engine].mapped(told))
        for name, (told, found) in made.items():
            commands.append(asked(engine, name, SCRIPTS[engine][1](told, found, DATA), runs / "sft"))
    found = answers(commands)
    assert [(case["name"], case["problem"]) for case in found["cases"] if case["problem"]] == []
    silent = {name for names in found["unread"].values() for name in names}
    assert silent == ONLY_DEMANDED
    for case, command in zip(found["cases"], commands, strict=True):
        values = case["values"]
        assert command["module"].startswith("openrlhf") or values["data.use_dynamic_bsz"] in (None, False)
        for name, value in (("algorithm.adv_estimator", "grpo"), ("algo.advantage.estimator", "group_norm")):
            assert case["name"] != "grpo" or values.get(name, value) == value


@pytest.mark.release
def test_engine_parsers_see_a_wrong_value_and_an_option_without_a_reader(runs):
    told = online(recipes.GRPO)
    verl, openrlhf = (asked(e, e, SCRIPTS[e][1](told, ENGINES[e].mapped(told), DATA), runs / "sft") for e in ENGINE)
    spoilt = [{**verl, "words": [*verl["words"], "actor_rollout_ref.actor.loss_agg_mode=mean"]}]
    spoilt += [{**verl, "words": [*verl["words"], "algorithm.no_such_option=1"]}]
    spoilt += [{**openrlhf, "words": [*openrlhf["words"], "--algo.advantage.estimator", "mean"]}]
    sft = RunSpec("sft", SFTSource(out="x"), SFTConfig(), None)
    seeded = asked("verl", "sft", SCRIPTS["verl"][1](sft, ENGINES["verl"].mapped(sft), DATA), runs / "sft")
    seeded = {key: [*value, "trainer.seed"] if key == "options" else value for key, value in seeded.items()}
    found = answers([*spoilt, seeded])
    assert all(case["problem"] for case in found["cases"][: len(spoilt)])
    assert found["unread"][seeded["module"]] == ["trainer.seed"]


# -- what is said of them --------------------------------------------------------------------------------------------

MEASURED = json.loads((Path(__file__).parents[1] / "benchmarks/engines.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("engine", ENGINE)
def test_bridge_tables_claim_what_was_measured(engine):
    """``benchmarks/engines.py`` ran their functions on shared tensors; it knows every row that goes, and no other."""
    assert MEASURED["versions"][engine] == ENGINES[engine].version
    cells = tables.online(engine)
    assert MEASURED["gradient"][engine].keys() == {name for name, cell in cells.items() if cell.mark != tables.NONE}
    for name, distance in MEASURED["gradient"][engine].items():
        if cells[name].mark == tables.SAME:
            assert distance < 1e-8, name


@pytest.mark.parametrize("engine", ENGINES)
def test_bridge_tables_have_every_row(engine):
    assert tables.online(engine).keys() == recipes.RECIPES.keys()
    assert tables.preferences(engine).keys() == PREFERENCES.keys()
    for cell in (tables.online(engine) | tables.preferences(engine)).values():
        assert (cell.mark == tables.NONE) == (not cell.options)
        assert cell.mark == tables.SAME or cell.words
        assert not any("inspect._empty" in option for option in cell.options)


def test_bridge_tables_numbers_move_what_they_are_called():
    names = tables.numbers()
    engines = ("epsilon_high", "actor_rollout_ref.actor.clip_ratio_high", "actor.eps_clip_low_high")
    assert names["epsilon_high"] == engines
    assert names["num_iterations"] == ("num_iterations", "actor_rollout_ref.actor.ppo_epochs", "train.max_epochs")


@pytest.mark.parametrize("engine", ENGINES)
def test_bridge_tables_settings_are_names_of_the_engine(engine):
    place = list(ENGINES).index(engine)
    names = {theirs[place] for theirs in [*tables.settings().values()]} - {""}
    if engine == "trl":
        trl, peft = pytest.importorskip("trl"), pytest.importorskip("peft")
        known = set(vars(trl.GRPOConfig(output_dir="x", bf16=False, use_cpu=True, report_to=[])))
        known |= {f"LoraConfig.{name}" for name in vars(peft.LoraConfig())}
    else:
        known = set(KNOWN[engine][{"verl": "verl.trainer.main_ppo", "openrlhf": "openrlhf.cli.train_ppo_ray"}[engine]])
    assert names <= known


def test_bridge_table_has_every_row_and_option(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "book/_ext"))
    bridge_table = importlib.import_module("bridge_table")
    rows = tables.online("trl")
    text = bridge_table.table(["", "", "", ""], bridge_table.cells(rows)).astext().replace("\u200b", "")
    assert all(f"\n\n{name}\n\n{cell.mark}\n\n" in f"\n\n{text}" for name, cell in rows.items())
    assert all(option in text for cell in rows.values() for option in (*cell.options, *cell.words))


# -- the folder ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of GRPO with a reader's own grader, and one of SFT."""
    folder = tmp_path_factory.mktemp("runs")
    problems = [{"prompt": f"say {n}", "reference": str(n)} for n in range(6)]
    talks = [{"prompt": f"q{n}", "completion": f"good {n}"} for n in range(6)]
    for name, rows in (("problems", problems), ("talks", talks)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "my.py").write_text(
        "def fn(completion, reference, messages):\n    return float(reference in completion)\n"
    )
    quick = [
        "--max-steps",
        "1",
        "--batch-size",
        "2",
        "--vocab-size",
        "300",
        "--context",
        "64",
        "--eval-fraction",
        "0.3",
    ]
    grader = ["--grader", f"{folder}/my.py:fn", "--max-completion-length", "4", "--num-generations", "2"]
    for trainer, rows, more in (("grpo", "problems", grader), ("sft", "talks", [])):
        argv = ["train", trainer, "--data", f"{folder}/{rows}.jsonl", "--out", str(folder / trainer), *quick, *more]
        assert main(argv) == 0
    return folder


def exported(runs, trainer, engine, folder, *more):
    argv = ["export", str(runs / trainer), "--to", engine, "--out", str(folder / "big"), "--allow-differences", *more]
    assert main(argv) == 0
    return folder / "big"


def loaded(file, name):
    """A module from a file, as both engines load a grader."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_export_to_verl_has_grader_and_data_as_it_asks(runs, tmp_path):
    from datasets import load_dataset

    out = exported(runs, "grpo", "verl", tmp_path)
    assert {"model", "data.parquet", "grader.py", "own_grader.py", "train.sh", "DIFFERENCES.md"} == {
        p.name for p in out.iterdir()
    }
    rows = load_dataset("parquet", data_files=str(out / "data.parquet"), cache_dir=str(tmp_path / "cache"))["train"]
    score = loaded(out / "grader.py", "custom_module").compute_score

    async def asked():  # as its NaiveRewardManager does: keywords, in a thread
        loop, found = asyncio.get_running_loop(), []
        for row in rows:
            said = row["reward_model"]["ground_truth"]
            for text in (f"it is {said}", "nothing"):
                extra = {**row["extra_info"], "num_turns": None, "rollout_reward_scores": {}}
                call = {
                    "data_source": row["data_source"],
                    "solution_str": text,
                    "ground_truth": said,
                    "extra_info": extra,
                }
                found.append(await loop.run_in_executor(None, lambda call=call: score(**call)))
        return found

    assert asyncio.run(asked()) == [1.0, 0.0] * len(rows)
    assert rows[0]["prompt"][0]["role"] == "user"
    assert "1e-6" in (out / "DIFFERENCES.md").read_text()


def test_export_to_openrlhf_has_grader_and_data_as_it_asks(runs, tmp_path):
    out = exported(runs, "grpo", "openrlhf", tmp_path)
    module = loaded(out / "grader.py", "reward_func")
    _, tokenizer = load_folder(out / "model")

    async def asked(row, reply):  # as its SingleTurnAgentExecutor does
        prompt = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text=prompt, add_special_tokens=False)["input_ids"]
        ids = ids + tokenizer(reply, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        query = tokenizer.decode(ids, skip_special_tokens=False)
        found = await asyncio.to_thread(module.reward_func, [query], [prompt], [row["reference"]])
        return torch.tensor([found["rewards"]]).tolist() + torch.tensor([found["scores"]]).tolist()

    rows = [json.loads(line) for line in (out / "data.jsonl").read_text().splitlines()]
    for row in rows:
        assert asyncio.run(asked(row, f"it is {row['reference']}")) == [1.0, 1.0]
        assert asyncio.run(asked(row, "nothing")) == [0.0, 0.0]
    assert module.reply(*[tokenizer.apply_chat_template(rows[0]["prompt"], tokenize=False)] * 2) == ""
    with pytest.raises(ValueError):
        module.reply("something else", tokenizer.apply_chat_template(rows[0]["prompt"], tokenize=False))


def test_export_of_sft_to_verl_has_messages(runs, tmp_path):
    from datasets import load_dataset

    out = exported(runs, "sft", "verl", tmp_path)
    rows = load_dataset("parquet", data_files=str(out / "data.parquet"), cache_dir=str(tmp_path / "cache"))["train"]
    assert [message["role"] for message in rows[0]["messages"]] == ["user", "assistant"]
    assert strange("verl", (out / "train.sh").read_text()) == []


@pytest.mark.parametrize(
    ("argv", "argument"), [(["--to", "verl"], "--allow-differences"), (["--model", "adapter"], "--model")]
)
def test_export_that_cannot_go_writes_nothing(runs, argv, argument, tmp_path):
    with raises(UserError, argument=argument):
        dispatch(["export", str(runs / "grpo"), "--out", str(tmp_path / "big"), *argv])
    assert list(tmp_path.iterdir()) == []


# -- and back --------------------------------------------------------------------------------------------------------

WORDS = word_tokenizer([f"w{i}" for i in range(20)])
IDS = torch.tensor([[7, 8, 9, 10], [11, 12, 13, 14]])


def judge():
    model = RewardModel.from_causal_lm(tiny_model("nano", WORDS, seed=2), seed=1).eval()
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return model


def scores(model):
    with torch.no_grad():
        return model(IDS, torch.ones_like(IDS))


@pytest.mark.parametrize("normalised", [False, True])
def test_reward_model_of_openrlhf_opens(normalised, tmp_path):
    """Its files are those of a sequence classifier; its class is called otherwise, and config.json may hold a mean and a deviation."""
    model = judge()
    plain, constant = as_classifier(model, WORDS)
    checkpoints.save(tmp_path / "rm", plain, WORDS)
    file = tmp_path / "rm/config.json"
    said = json.loads(file.read_text())
    for name in ("id2label", "label2id", "num_labels"):
        said.pop(name, None)
    said |= {"architectures": ["RewardModel"], "value_head_prefix": "score", "normalize_reward": normalised}
    said |= {"mean": 0.3, "std": 2.0} if normalised else {}
    file.write_text(json.dumps(said))
    (tmp_path / "rm/manifest.json").unlink()
    expected = scores(model) - constant
    torch.testing.assert_close(
        scores(RewardModel.from_pretrained(tmp_path / "rm")), (expected - 0.3) / 2 if normalised else expected
    )


def test_load_folder_opens_an_adapter_of_peft_with_its_base(tmp_path):
    peft = pytest.importorskip("peft")
    base = tiny_model("nano", WORDS, seed=2)
    checkpoints.save(tmp_path / "big/model", base, WORDS)
    wrapped = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(len(name)))
    wrapped.save_pretrained(tmp_path / "big/out/adapter")
    adapters.rename_base(tmp_path / "big/out/adapter", "model")  # as a trainer in big/ would call it
    # In float64: in float32, base and adapter added up and one after the other differ by the rounding of both, which has no
    # bound that suits every draw of the adapter.
    found, tokenizer = load_folder(tmp_path / "big/out/adapter", dtype=torch.float64)
    with torch.no_grad():
        expected = wrapped.double().eval()(input_ids=IDS).logits
        torch.testing.assert_close(found(input_ids=IDS).logits, expected, atol=1e-9, rtol=1e-9)
    assert tokenizer.get_vocab() == WORDS.get_vocab()
    adapters.rename_base(tmp_path / "big/out/adapter", "")
    with raises(UserError, argument="base_model_name_or_path", problem="missing"):
        load_folder(tmp_path / "big/out/adapter")


def test_load_folder_refuses_an_adapter_of_another_model(tmp_path):
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(
        tiny_model("nano", WORDS), peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    wrapped.save_pretrained(tmp_path / "adapter")
    checkpoints.save(tmp_path / "other", tiny_model("micro", WORDS), WORDS)
    adapters.rename_base(tmp_path / "adapter", "other")
    with raises(UserError, argument="adapter", problem="shape"):
        load_folder(tmp_path / "adapter")


@pytest.mark.parametrize("trainer", ["sft", "reward"])
def test_export_of_a_lora_run_comes_back_as_an_adapter(trainer, tmp_path):
    pytest.importorskip("peft")
    rows = {
        "sft": {"prompt": "q", "completion": "good one"},
        "reward": {"prompt": "q", "chosen": "good", "rejected": "bad"},
    }
    key = {"sft": "completion", "reward": "chosen"}[trainer]
    data = [{**rows[trainer], "prompt": f"q{n}", key: f"good {n}"} for n in range(8)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    run, out = tmp_path / "run", tmp_path / "big"
    argv = [
        "train",
        trainer,
        "--data",
        f"{tmp_path}/d.jsonl",
        "--out",
        str(run),
        "--max-steps",
        "3",
        "--batch-size",
        "2",
    ]
    argv += [
        "--vocab-size",
        "300",
        "--context",
        "64",
        "--eval-fraction",
        "0.3",
        "--lora-r",
        "2",
        "--learning-rate",
        "0.05",
    ]
    assert main(argv) == 0
    assert main(["export", str(run), "--out", str(out), "--model", "adapter"]) == 0
    assert 'PeftModel.from_pretrained(model, "adapter", is_trainable=True)' in (out / "train.py").read_text()
    assert (
        main(["export", str(run), "--to", "openrlhf", "--out", f"{out}2", "--model", "adapter", "--allow-differences"])
        == 2
    )
    ids = torch.tensor([[20, 30, 40], [50, 60, 70]])
    if trainer == "sft":
        ours, theirs, start = (load_folder(f)[0] for f in (run / "model", out / "adapter", out / "model"))
        ours, theirs, start = (model(input_ids=ids).logits for model in (ours, theirs, start))
    else:
        models = (RewardModel.from_pretrained(f) for f in (run / "model", out / "adapter", out / "model"))
        ours, theirs, start = (model(ids, torch.ones_like(ids)) for model in models)
        ours, theirs, start = (x - x.mean() for x in (ours, theirs, start))  # the bias stays here
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    assert float((start - ours).detach().abs().max()) > 1e-3


# -- what somebody asked for reaches the script, or is said, or refused ---------------------------------------------


def told_of(kind):
    """A run of this trainer, as it would be without a choice."""
    configs = {"sft": SFTConfig, "reward": RewardConfig, "online": OnlineConfig}
    sources = {"sft": SFTSource, "reward": RewardSource, "online": OnlineSource}
    recipe = recipes.GRPO if kind == "online" else PREFERENCES.get(kind)
    more = {"batch_size": 16, "num_generations": 4} if kind == "online" else {}
    return RunSpec(kind, sources.get(kind, OfflineSource)(out="x"), configs.get(kind, OfflineConfig)(**more), recipe)


def outcome(engine, told):
    """The script and what is said to differ; None where it is refused."""
    try:
        found = ENGINES[engine].mapped(told)
        return SCRIPTS[engine][1](told, found, DATA), differences(told, found, ENGINES[engine], "start")
    except UserError:
        return None


def others(value):
    """Other values of an option, to be tried until one is taken."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 4]
    return [value / 2 + 0.01, value * 0.9 + 0.02] if isinstance(value, float) else [0.3, 2]


#: Of those the differences speak in any case.
SAID = {"vf_coef", "max_resampling_rounds", "renormalise"}
#: The length of a reply is the run's; the command line has one word for both.
OF_THE_RUN = {"max_completion_length"}


@pytest.mark.parametrize("engine", ENGINES)
def test_bridge_recipe_numbers_reach_the_script_or_are_said_or_refused(engine):
    silent, tried = [], 0
    base = told_of("online")
    for name, row in recipes.RECIPES.items():
        before = outcome(engine, replace(base, recipe=row.resolved(max_completion_length=32)))
        for option, found in row.numbers().items() if before else ():
            for value in others(found.value):
                with contextlib.suppress(UserError, ValueError):
                    changed = row.with_(**{option: value}).resolved(max_completion_length=32)
                    idle = {
                        o
                        for r in (row.resolved(max_completion_length=32), changed)
                        for i in r.unused_options(4)
                        for o in i.options
                    }
                    after = outcome(engine, replace(base, recipe=replace(changed, name=row.name)))
                    tried += 1
                    grader = option in {o for f in row.collect.shape for o in inspect.signature(f).parameters}
                    known = option in SAID or option in OF_THE_RUN or option in idle or (engine == "trl" and grader)
                    silent += [] if known or after != before else [(name, option, value)]
                    break
    assert tried > 100 and silent == []


@pytest.mark.parametrize("engine", ["trl", "openrlhf"])
def test_bridge_loss_numbers_reach_the_script_or_are_refused(engine):
    silent, tried = [], 0
    for name, row in PREFERENCES.items():
        before = outcome(engine, told_of(name))
        for option, found in row.numbers().items() if before else ():
            for value in others(found.value):
                with contextlib.suppress(UserError, ValueError):
                    changed = replace(row.with_(**{option: value}), name=row.name)
                    tried += 1
                    after = outcome(engine, replace(told_of(name), recipe=changed))
                    silent += [] if after != before else [(name, option, value)]
                    break
    assert tried > 4 and silent == []


#: Settings that are no part of a step: where things lie, how often something is written, how a preset is made, how memory is saved.
NO_PART = {
    "out", "device", "report_to", "eval_data", "eval_steps", "save_steps", "num_logged_samples", "max_invalid_fraction", "micro_batch_size",
    "epochs", "load_best_model_at_end",
}  # fmt: skip
#: What goes as files of the folder, which the tests of the folder look at: data, model, tokenizer, reference, grader.
AS_FILES = {
    "data", "format", "split", "limit", "eval_fraction", "drop_identical", "drop_long", "task", "demonstrations", "ptx_data", "model",
    "vocab_size", "context", "chat_template", "chat_template_kwargs", "ref_model", "grader", "grader_timeout", "thought_tags", "reward_model",
    "reward_aggregation", "prompt_field", "completion_field", "chosen_field", "rejected_field", "messages_field", "answer_field", "rating_field",
    "max_length",
}  # fmt: skip
VALUES = {
    "train_on": "all",
    "loss_type": "dft",
    "lr_scheduler_type": "linear",
    "dtype": "float64",
    "pooling": "mean",
    "loss": "regression",
    "bf16": True,
    "truncation_mode": "keep_start",
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["online", "dpo", "sft", "reward"])
def test_bridge_settings_reach_the_script_or_are_said_or_refused(engine, kind):
    told = told_of(kind)
    told = replace(told, source=replace(told.source, lora_r=4))
    before = outcome(engine, told)
    silent, tried = [], 0
    for part in ("config", "source"):
        for field in fields(getattr(told, part)) if before else ():
            if field.name in NO_PART | AS_FILES | told.config.unused_options().keys():
                continue
            choices = [VALUES[field.name]] if field.name in VALUES else others(getattr(getattr(told, part), field.name))
            for value in choices:
                with contextlib.suppress(UserError):
                    changed = replace(told, **{part: replace(getattr(told, part), **{field.name: value})})
                    tried += 1
                    silent += [] if outcome(engine, changed) != before else [field.name]
                    break
    # verl and OpenRLHF compute in bfloat16 in any case, and say so
    assert set(silent) <= ({"bf16"} if engine != "trl" else set())
    assert tried > 8 or before is None
