"""Training runs for any model: settings, the loop, ranks, log, checkpoints and memory planner."""
