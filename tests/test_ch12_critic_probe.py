"""The critic's values of fixed replies."""

import torch

from minirlhf.data import tasks
from minirlhf.data.chat import conversation, encode
from minirlhf.models.critics import new_critic
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_course.chapters.ch12_policy_gradients.critic_probe import CriticProbe


def test_critic_probe_values_stand_before_each_token_of_the_reply():
    game = tasks.get("shell_game")
    tokenizer = word_tokenizer(game.words)
    critic = new_critic(tiny_model("nano", tokenizer), shared=False)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    prompt = game.prompts("train")[0]
    asked = conversation(prompt)
    probe = CriticProbe(critic, tokenizer, {"think": [(asked, "think a a")], "blurt": [(asked, "answer b")]})
    values = probe.values(asked, "answer b")
    ids = torch.tensor([encode(tokenizer, conversation(prompt, "answer b")).input_ids])
    whole = critic(ids, torch.ones_like(ids))[0].detach()
    assert values.shape == (3,)  # before "answer", before "b", before EOS
    assert torch.allclose(values, whole[-4:-1], atol=1e-6)
    probe.look()
    assert probe.seen[0].keys() == {"before", "think", "blurt"}
    assert abs(probe.seen[0]["blurt"] - float(values[1])) < 1e-6
    assert probe.seen[0]["think"] != probe.seen[0]["blurt"]
