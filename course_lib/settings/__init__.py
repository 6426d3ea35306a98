"""Settings of every chapter: dataclasses, YAML files, profiles, and what a profile costs."""
