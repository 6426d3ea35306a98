"""Chapter 6: prefix tuning. The model stays frozen; each task trains a short prefix of keys and values for it."""
