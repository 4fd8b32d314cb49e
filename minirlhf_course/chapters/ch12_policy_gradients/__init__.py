"""Chapter 12, Policy gradients for language models: what only it needs."""
