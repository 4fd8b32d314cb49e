"""A reward of your own: any function of problems and completions, trained with GRPO."""

import minirlhf as rl


def brief_thanks(problems, completions):
    """1 for a word of thanks, less a twentieth for each word."""
    return [float("thanks!" in text.split()) - 0.05 * len(text.split()) for text in completions]


model, tokenizer = rl.load("assistant-sft")
task = rl.task("assistant")  # its prompts; a list of texts does as well
print("before:", rl.evaluate(model, tokenizer, task, reward=brief_thanks).reward)
history = rl.train(model, tokenizer, task, rl.GRPO, reward=brief_thanks, max_steps=30, learning_rate=5e-4)
print("after: ", rl.evaluate(model, tokenizer, task, reward=brief_thanks).reward)
print(rl.generate(model, tokenizer, "tell me about cats", num_generations=3))
rl.plot(history, "reward", "kl", "completion_length").savefig("own_reward.png")
