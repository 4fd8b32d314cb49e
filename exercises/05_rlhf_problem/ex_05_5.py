# ---
# title: The memory of four models
# kind: numeric
# minutes: 15
# ---

# %% [statement]
# RLHF with PPO uses four models at once. The *actor* and the *critic* are trained. The
# *reward model* and the *reference* are frozen. Before you rent a machine, add up their memory.
#
# `plan(STUDENT)` is your own project: how many billions of parameters the policy (actor and reference alike), the critic and the
# reward model have. Count only weights, gradients and optimiser states. Activations come on top and depend on the batch.
#
# * A frozen model keeps its weights in bfloat16: 2 bytes per parameter.
# * A model that is trained in mixed precision with Adam keeps bfloat16 weights (2) and gradients (2). In float32 it keeps a master
#   copy of the weights (4) and Adam's two moments (4 + 4).
#
# Answer in gigabytes of $10^9$ bytes:
#
# 1. `ppo_gb`: all four models, with actor and critic trained in full.
# 2. `grpo_gb`: GRPO needs no critic. Everything else is as before.
# 3. `lora_gb`: GRPO again, but the actor is frozen in bfloat16. Only adapters with `plan(STUDENT)["lora"]` billion parameters are
#    trained on top of it, in mixed precision with Adam. One of the models then needs no extra memory. Which one, and why?

# %% [given]
from minirlhf_course.ledger.registry import Draw


def plan(student):
    """This student's project: billions of parameters per model."""
    draw = Draw("05.5", student)
    policy = [3, 7, 8, 13, 14, 32][draw.integer(0, 5)]
    critic, reward = [1, 2, 5, 6][draw.integer(0, 3)], [0.5, 1.5, 4, 9][draw.integer(0, 3)]
    return {"policy": policy, "critic": critic, "reward": reward, "lora": [0.02, 0.05, 0.1, 0.2][draw.integer(0, 3)]}


# %% [stub]
print(plan(STUDENT))

ppo_gb = None
grpo_gb = None
lora_gb = None

# %% [solution]
sizes = plan(STUDENT)
trained, frozen = 2 + 2 + 4 + 4 + 4, 2
ppo_gb = trained * (sizes["policy"] + sizes["critic"]) + frozen * (sizes["policy"] + sizes["reward"])
grpo_gb = ppo_gb - trained * sizes["critic"]
lora_gb = frozen * (sizes["policy"] + sizes["reward"]) + trained * sizes["lora"]  # the reference: adapters switched off

# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def gigabytes(student, roles):
    """Bytes per parameter times billions of parameters, summed over `(model, bytes)`."""
    sizes = plan(student)
    return float(sum(sizes[model] * each for model, each in roles))


ACTOR, CRITIC, REWARD, REFERENCE = ("policy", 16), ("critic", 16), ("reward", 2), ("policy", 2)


def ask(sub, name, roles, mistakes):
    want = gigabytes(sub.student, roles)
    wrong = {text: gigabytes(sub.student, other) for text, other in mistakes.items()}
    wrong |= {"it is in bytes": want * 1e9, "it is in GiB, of 2^30 bytes": want * 1e9 / 2**30}
    expect(sub.number(name), want, what=f"`{name}`", tolerance=0.0005, reveal=False, mistakes=wrong)


@test(
    points=1,
    rounds=1,
    hints=(
        "First add up the bytes per parameter of a trained model. The sum is several times the 2 bytes of a frozen model.",
        "Actor and critic need 2 + 2 + 4 + 4 + 4 bytes per parameter, reference and reward model need 2. The reference "
        "is as large as the actor.",
    ),
)
def four_models(sub, draw):
    "`ppo_gb` counts two trained and two frozen models."
    ask(
        sub,
        "ppo_gb",
        (ACTOR, CRITIC, REWARD, REFERENCE),
        {
            "the reference is omitted": (ACTOR, CRITIC, REWARD),
            "all four models are trained": (ACTOR, CRITIC, ("reward", 16), ("policy", 16)),
            "Adam's states and the master copy are omitted": (("policy", 4), ("critic", 4), REWARD, REFERENCE),
            "the float32 master copy is omitted": (("policy", 12), ("critic", 12), REWARD, REFERENCE),
            "the critic is frozen": (ACTOR, ("critic", 2), REWARD, REFERENCE),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which of the four models does GRPO not need, and is this model trained or frozen?",
        "A critic needs weights, gradients, a master copy and both of Adam's moments. Subtract all of them.",
    ),
)
def no_critic(sub, draw):
    "`grpo_gb` is the same without a critic."
    ask(
        sub,
        "grpo_gb",
        (ACTOR, REWARD, REFERENCE),
        {
            "the critic's weights go, but its gradients and optimiser states stay": (
                ACTOR,
                ("critic", 14),
                REWARD,
                REFERENCE,
            ),
            "reference and reward model are trained, too": (ACTOR, ("policy", 16), ("reward", 16)),
            "the reward model is left out": (ACTOR, REFERENCE),
            "the reference is left out": (ACTOR, REWARD),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "With adapters, the actor is a frozen model plus a few trained parameters. Which model do you get if you switch the adapters off?",
        "Without its adapters the actor *is* the reference, so one copy of the weights serves both. Count the frozen weights "
        "once, the adapters at 16 bytes per parameter, and the reward model.",
    ),
)
def adapters(sub, draw):
    "`lora_gb` counts a frozen actor with trained adapters."
    lora = ("lora", 16)
    ask(
        sub,
        "lora_gb",
        (REFERENCE, lora, REWARD),
        {
            "the reference is kept as a second copy": (REFERENCE, REFERENCE, lora, REWARD),
            "a second set of adapters, a frozen one, is counted": (REFERENCE, lora, ("lora", 2), REWARD),
            "the adapters are frozen": (REFERENCE, ("lora", 2), REWARD),
            "the actor is still trained in full": (ACTOR, lora, REWARD),
        },
    )


# %% [mutant] the reference is omitted
# caught by: four_models
# says: the reference is omitted
ppo_gb = ppo_gb - frozen * sizes["policy"]

# %% [mutant] Adam is omitted
# caught by: four_models
# says: master copy are omitted
ppo_gb = 4 * (sizes["policy"] + sizes["critic"]) + frozen * (sizes["policy"] + sizes["reward"])

# %% [mutant] units of 2^30 bytes
# caught by: four_models
# says: GiB
ppo_gb = ppo_gb * 1e9 / 2**30

# %% [mutant] GRPO without a reward model
# caught by: no_critic
# says: the reward model is left out
grpo_gb = grpo_gb - frozen * sizes["reward"]

# %% [mutant] two copies of the frozen weights
# caught by: adapters
# says: a second copy
lora_gb = lora_gb + frozen * sizes["policy"]

# %% [partial] 2: PPO and GRPO are right, LoRA is not answered
lora_gb = None

# %% [partial] 1: only PPO is right
grpo_gb, lora_gb = ppo_gb, ppo_gb
