"""The tour: post-training end to end on tiny models, in about two minutes, with a report of what it did."""
