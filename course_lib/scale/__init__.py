"""The corpus work of chapters 1 to 4 as stages of datatrove, for one machine or a cluster (Slurm, Ray)."""
