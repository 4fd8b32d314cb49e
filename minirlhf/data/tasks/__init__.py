"""Tiny worlds: prompts, references and a string grader each. A new task is one file."""
