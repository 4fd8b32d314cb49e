"""The tour: post-training end to end on tiny models, in under three minutes, with a report of what it did."""
