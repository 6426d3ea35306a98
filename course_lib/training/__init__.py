"""Training runs for any model: settings, tasks, launcher, ranks, log, checkpoints and memory planner."""
