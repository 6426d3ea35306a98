"""The verbs of `course`."""
