"""Files that ``minirlhf challenge start`` writes: one to start from, and three baselines. Each runs by itself."""
