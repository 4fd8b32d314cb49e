"""The page on many machines: models weighed without being made, against models that were; its tables; its numbers."""

import itertools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from minirlhf.equations import machines as equations
from minirlhf.models import memory_profile
from minirlhf_course.report import machines

WIDTH = 48
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 90,
}


def shape(kept):
    return LlamaConfig(**SMALL, num_key_value_heads=kept)


def test_weigh_equals_real_model():
    config = shape(2)
    weighed, model = memory_profile.profile_memory(config, width=WIDTH), LlamaForCausalLM(shape(2)).to(torch.bfloat16)
    with torch.no_grad():
        out = model(torch.ones(1, WIDTH, dtype=torch.long), use_cache=True)
    held = sum(t.nbytes for layer in out.past_key_values.layers for t in (layer.keys, layer.values))
    assert weighed.parameters == sum(p.numel() for p in model.parameters())
    assert weighed.cache * WIDTH == held
    assert (
        weighed.multiplied == weighed.parameters - model.model.embed_tokens.weight.numel()
    )  # of untied embeddings one row is read
    assert weighed.logits * WIDTH == out.logits.float().nbytes


@pytest.mark.parametrize("kept", [1, 4])
def test_kept_by_layer_on_meta_equals_cpu(kept):
    bare, real = (
        memory_profile.activation_bytes_by_layer(shape(kept), width=WIDTH, device=device) for device in ("meta", "cpu")
    )
    assert sorted(t.untyped_storage().nbytes() for t in bare) == sorted(t.untyped_storage().nbytes() for t in real)


def test_weigh_activations_equal_fused_attention():
    real = memory_profile.activation_bytes_by_layer(shape(4), width=WIDTH, device="cpu", attention="sdpa")
    weighed = memory_profile.profile_memory(shape(4), width=WIDTH)
    per_token = sum(t.untyped_storage().nbytes() for t in real) / WIDTH
    heads = SMALL["num_attention_heads"] * 4  # the logarithm of each head's sum
    assert abs(per_token - heads - weighed.activations / weighed.layers) < 0.02 * per_token
    assert weighed.tables > 0


def test_weigh_checkpointed_is_between_inputs_and_all():
    weighed = memory_profile.profile_memory(shape(4), width=WIDTH)
    assert weighed.inputs < weighed.checkpointed < weighed.activations


def test_machines_models_have_their_sizes():
    assert [round(m.parameters / 1e9, 2) for m in machines.models().values()][1:] == [1.24, 8.03, 70.55]


@pytest.mark.parametrize("name", machines.TABLES)
def test_machines_tables_have_all_cells(name):
    head, *lines = machines.TABLES[name]()
    assert lines and all(len(line) == len(head) and all(line) for line in lines)


def test_machines_held_falls_with_stage():
    for model, count in itertools.product(("8 B", "70 B"), (8, 64)):
        stages = [machines.held(model, count, stage) for stage in range(4)]
        assert stages == sorted(stages, reverse=True)


def test_machines_decoding_reads_weights_once():
    one, many = machines.Decoding(1), machines.Decoding(machines.BATCH)
    read = many.seconds * machines.BANDWIDTH - one.seconds * machines.BANDWIDTH
    cache = machines.models()["8 B"].cache
    assert read == pytest.approx((machines.BATCH - 1) * machines.WIDTH / 2 * cache)
    assert 0 < one.busy < many.busy < 1


def test_machines_size_and_duration_texts():
    texts = [machines.size(x).replace("\u00a0", " ") for x in (131072, 16.06e9, 999.6e6, 1.13e12, 1500)]
    assert texts == ["131 kB", "16.1 GB", "1.0 GB", "1.1 TB", "1.5 kB"]
    assert machines.duration(0.32).replace("\u00a0", " ") == "320 ms"


def test_machines_statements_of_page_hold():
    """What the page says in words about its numbers."""
    eight, seventy = machines.models()["8 B"], machines.models()["70 B"]
    weights = equations.WEIGHTS * eight.parameters
    assert machines.held("8 B", 1, 0) > machines.MEMORY > weights  # it answers on one machine and does not learn on one
    assert machines.held("8 B", 8, 1) < machines.MEMORY < machines.held("70 B", 8, 3)
    assert machines.held("70 B", 64, 3) < machines.MEMORY < machines.held("70 B", 64, 2)
    tokens = machines.REPLIES * machines.WIDTH
    assert weights + tokens * eight.cache > machines.MEMORY > weights + tokens * eight.cache / 2
    assert seventy.parameters / eight.parameters > 8 > 3 > seventy.cache / eight.cache
    assert eight.activations / 2 < eight.tables < eight.activations  # as wide again, and the tables have overtaken
    facts = machines.facts()
    assert set(map(bool, facts.values())) == {True}
    seconds = lambda name: float(facts[name].split("\u00a0")[0]) * (1e-3 if facts[name].endswith("ms") else 1)
    assert seconds("tensor-network") > seconds("training-group") > seconds("tensor-link")
    assert seconds("training") > seconds("sampling") and seconds("sync") < 0.05 * seconds("training-group")
    assert float(facts["split"]) < 0.5
