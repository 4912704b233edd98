"""From an interaction log to the sequences that training and evaluation read."""
