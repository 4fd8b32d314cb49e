"""Sources of feedback: graders, reward functions, judges, annotators and tools."""
