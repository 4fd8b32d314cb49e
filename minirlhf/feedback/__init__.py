"""Layer 4: sources of feedback: graders, reward functions, judges, annotators and tools."""
