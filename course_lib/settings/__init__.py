"""Settings of every chapter: dataclasses, YAML files and profiles."""
