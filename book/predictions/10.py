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
        "it falls below log 3": "That takes a neighbour that says something about one's own language. These say nothing, so log 3 = {floor:.2f} is the floor with the mask and without it.",
        "it stays well above log 3": "The strangers are seen, and the logits are not what they should be. But the training itself takes place among strangers, and the model learns to translate nearly as well in spite of them: {leaking:.3f} nats, and {masked:.3f} with the mask.",
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
    "We tune our tiny base model with Adam for 100 steps, its adapters with α = 2r, each time at the best of a few learning rates in steps of about three. How many times the rate of full fine-tuning do adapters of rank 1, 4 and 16 want?",
    {
        "one to three times": "",
        "about ten times": "That was found for large models, with Adam as well, and with one α for all ranks where ours is 2r. Here ranks 1 and 4 want about {one:.0f} times the rate, and rank 16 the same rate. One reason may be that our base has to learn much that a large one knows.",
        "more than a hundred times": "By plain descent an adapter of rank 16 lowers the loss in its first step by about 1/{fraction} of what a full step does, in a layer of 4,096. But Adam's steps do not scale with the gradient.",
    },
    _rates,
)


def _gigabytes():
    bits = math.log2(len(tuning.nf4_levels()))
    weights, block, scale = 65e9, 64, 32
    gigabytes = [weights * each / 8 / 1e9 for each in (bits + scale / block, bits, 16)]
    return gigabytes[0], {"alone": gigabytes[1], "full": gigabytes[2], "scales": gigabytes[0] - gigabytes[1]}


four_bits = Ask(
    "How many GB do 65 billion weights take, stored in four bits like this with a scale of 32 bits for each block of 64, and without the adapters?",
    Typed(
        within=1.5,
        unit="GB",
        form=".1f",
        low="{alone:.1f} GB are the four bits of each weight alone. A scale for each 64 weights is half a bit more for each, {scales:.1f} GB in all.",
        high="Of the {full:.0f} GB in 16 bits a quarter is left, and a scale's 32 bits are shared by 64 weights: half a bit for each.",
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
    "Pooled over all places behind a fact the demonstrators say “and” more often than they end, and after the twenty steps of imitation the model hardly tells these places apart. Now come eighty of dynamic fine-tuning: how many of the replies stop then?",
    {
        "nearly all": "The loss does sharpen what the model half knows. But it goes to the token that is likeliest at a place, and for a model that hardly tells the places apart that is mostly “and”.",
        "about as many": "To keep a frequency is what imitation does: it rests where the model ends as often as the demonstrators. The other loss rests where all probability is on one token.",
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
    "Now 15 examples in which the two contradict each other, and the system message is obeyed, are put beside the 1,500. How many of the conflicts does the system message win?",
    {
        "about as few as before": "They are one example in a hundred. But the other 1,500 are answered rightly by either order of rank, so that nothing in them speaks against these 15.",
        "about half": "Fifteen need not outweigh the others: nothing is decided there, and the 15 are the only ones that say who wins. The system message wins {after:.0f} of 100, on average of ten seeds.",
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
    "Train at three times the rate for three times as long. How do the shares of right replies compare after ten, 300 and 2,000 demonstrations?",
    {
        "ten do as well as 2,000": "The facts stood in the stream, and ten demonstrations teach the form. But to say what is true of the animal that was asked about takes more of them: {few:.2f} of the replies are right after ten, {many:.2f} after 2,000.",
        "300 bring most of the gain": "",
        "2,000 bring much more than 300": "The held-out loss falls on. But the facts are few and stood in the stream before; of the way from {few:.2f} to {many:.2f} the first 300 go as far as {some:.2f}.",
    },
    _longer,
)
