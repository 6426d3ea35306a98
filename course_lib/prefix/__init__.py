"""Chapter 6: prefix tuning. One frozen model, and for every task a small prefix of keys and values in front of each text."""
