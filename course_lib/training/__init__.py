"""A training run of any model: settings, task, launcher, ranks, log, checkpoints, memory planner."""
