"""What chapter 10 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

from asking import Ask, Typed, compared, mean

from minirlhf.equations import tuning
from minirlhf_course.chapters.ch10_instruction_tuning import study_assistant, study_losses


def _strangers():
    masked, leaking = (mean("ch10_packing", f"mixed_{kind}_train") for kind in ("masked", "leaking"))
    if abs(leaking - masked) < 0.05:
        answer = "hardly anything"
    else:
        answer = "it falls below log 3" if leaking < masked else "it stays well above log 3"
    return answer, {"masked": masked, "leaking": leaking, "floor": math.log(3)}


strangers = Ask(
    "If the language of each of the six documents is drawn independently instead, what does the forgotten mask do to the training loss?",
    {
        "it falls below log 3": "This would need a neighbour that carries information about a document's own language. These neighbours carry none, so log 3 = {floor:.2f} is the floor with the mask and without it.",
        "it stays well above log 3": "The model does attend to unrelated documents, and the logits are wrong. But it is trained among them, and it learns to translate nearly as well: {leaking:.3f} nats, and {masked:.3f} with the mask.",
        "hardly anything": "",
    },
    _strangers,
)


def _rates():
    def best(rank: int) -> float:
        places = {
            rate: ("ch10_assistant", f"nll_rank_{rank}_rate_{n}") for n, rate in enumerate(study_assistant.RATES[rank])
        }
        if rank in study_losses.RATES:
            places[study_losses.RATES[rank]] = ("ch10_losses", f"nll_rank_{rank}_rate_3")
        return min(places, key=lambda rate: mean(*places[rate]))

    times = [best(rank) / best(0) for rank in (1, 4, 16)]
    if min(times) > 0.9 and max(times) < 5:
        answer = "one to three times"
    elif min(times) > 5 and max(times) < 20:
        answer = "about ten times"
    elif min(times) > 100:
        answer = "more than a hundred times"
    else:
        raise ValueError(f"{times} times the rate of all weights is what no choice says")
    assert round(times[0]) == round(times[1]) and round(times[2]) == 1  # as a lesson says
    fraction = round(3 * 4096 / (4 * 16), -1)  # of the first step, about, as the text has it
    return answer, {"one": times[0], "fraction": f"{fraction:.0f}"}


adapters_rate = Ask(
    "We fine-tune our tiny base model with Adam for 100 steps, its adapters with α = 2r. For each we take the best of three or four learning rates, which differ by factors of about three. How many times the rate of full fine-tuning is best for adapters of rank 1, 4 and 16?",
    {
        "one to three times": "",
        "about ten times": "This was found for large models, also with Adam, and with one α for all ranks; ours is 2r. Here about {one:.0f} times the rate is best for ranks 1 and 4, and the same rate for rank 16. One reason may be that our base has to learn much that a large one knows.",
        "more than a hundred times": "With plain gradient descent, in a layer of 4,096, the first step of an adapter of rank 16 lowers the loss by about 1/{fraction} of the decrease of a full step. But Adam's steps do not scale with the gradient.",
    },
    _rates,
)


def _gigabytes():
    bits = math.log2(len(tuning.nf4_levels()))
    weights, block, scale = 65e9, 64, 32
    gigabytes = [weights * each / 8 / 1e9 for each in (bits + scale / block, bits, 16)]
    return gigabytes[0], {"alone": gigabytes[1], "full": gigabytes[2], "scales": gigabytes[0] - gigabytes[1]}


four_bits = Ask(
    "How many GB do 65 billion weights take in this format: four bits per weight, a scale of 32 bits for each block of 64, without the adapters?",
    Typed(
        within=1.5,
        unit="GB",
        form=".1f",
        low="The four bits alone take {alone:.1f} GB. A scale for each 64 weights adds half a bit per weight, {scales:.1f} GB in total.",
        high="In 16 bits the weights take {full:.0f} GB, and four bits are a quarter. The 32 bits of a scale are shared by 64 weights: half a bit for each.",
    ),
    _gigabytes,
)


def _trusted():
    before, after = mean("ch10_losses", "stops_before"), mean("ch10_losses", "stops_dft_after")
    change = compared("ch10_losses", "stops_dft_after", "stops_before")
    if change == "alike":
        answer = "about as many"
    elif change == "larger" and after > 0.9:
        answer = "nearly all"
    elif change == "smaller" and after < 0.1:
        answer = "hardly any"
    else:
        raise ValueError(f"{after} after {before} is what no choice says")
    return answer, {}


trusted_early = Ask(
    "Over all contexts after a fact, the demonstrators write “and” more often than they end. Suppose that after the twenty steps of imitation the model hardly distinguishes these contexts. Now follow eighty steps of dynamic fine-tuning (DFT). How many of the completions stop afterwards?",
    {
        "nearly all": "DFT does sharpen what the model half knows. But it moves to the most probable token of a context. If the model hardly distinguishes the contexts, this token is mostly “and”.",
        "about as many": "Imitation preserves frequencies: it converges where the model ends as often as the demonstrators. DFT converges where all probability is on one token.",
        "hardly any": "",
    },
    _trusted,
)


def _fifteen():
    before, after = (100 * mean("ch10_hierarchy", f"system_{n}") for n in (0, 15))
    said = {"about as few as before": before, "about half": 50.0, "about nine in ten": 90.0}
    answer = min(said, key=lambda words: abs(said[words] - after))
    if abs(said[answer] - after) > 5:
        raise ValueError(f"{after} is what no choice says")
    return answer, {"before": before, "after": after}


fifteen_conflicts = Ask(
    "We add 15 examples to the 1,500. In them the two messages contradict each other, and the system message is obeyed. How many conflicts does the system message now win, about words that occur in none of the 15?",
    {
        "about as few as before": "They are one example in a hundred. But both rankings answer the other 1,500 correctly, so nothing in the data contradicts these 15.",
        "about half": "The 15 need not outweigh the others: the others decide nothing, and only the 15 say who wins. The system message wins {after:.0f} of 100 conflicts, on average over ten seeds.",
        "about nine in ten": "",
    },
    _fifteen,
)


def _longer():
    few, some, many = (mean("ch10_quantity", f"right_{n}") for n in (10, 300, 2000))
    if compared("ch10_quantity", "right_2000", "right_10") != "larger":
        answer = "ten do as well as 2,000"
    elif some - few > 3 * abs(many - some):
        answer = "300 bring most of the gain"
    elif many - some > some - few:
        answer = "2,000 bring much more than 300"
    else:
        raise ValueError(f"{few}, {some} and {many} are what no choice says")
    return answer, {"few": few, "some": some, "many": many}


trained_longer = Ask(
    "Train at three times the rate for three times as many steps. How do the fractions of right completions compare with 10, 300 and 2,000 demonstrations?",
    {
        "ten do as well as 2,000": "The base model knows the facts, and ten demonstrations teach the form. But answering about the animal in question needs more of them: {few:.2f} of the completions are right with ten, {many:.2f} with 2,000.",
        "300 bring most of the gain": "",
        "2,000 bring much more than 300": "The held-out loss does continue to fall. But the facts are few, and the base model has seen them. The fraction rises from {few:.2f} with ten to {some:.2f} with 300 and {many:.2f} with 2,000.",
    },
    _longer,
)
