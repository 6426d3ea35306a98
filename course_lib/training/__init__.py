"""Training runs of any model: settings, task, launcher, ranks, log, checkpoints and memory planner."""
