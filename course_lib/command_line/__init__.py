"""The commands of `course`."""
