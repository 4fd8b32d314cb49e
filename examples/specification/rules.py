"""Rules of an assistant that answers questions about animals: one function for each, of a reply and what was asked."""

from minirlhf.data.tasks.assistant import features


def _counted(completion, messages):
    return features(messages[-1]["content"], completion)


def no_false_claim(completion, reference, messages):
    """Whether nothing that it says of an animal is wrong."""
    return _counted(completion, messages).wrong == 0


def answers(completion, reference, messages):
    """Whether it says something true of an animal that was asked about."""
    return _counted(completion, messages).facts >= 1


def one_polite_word(completion, reference, messages):
    """Whether it has one polite word at most."""
    return _counted(completion, messages).polite <= 1
