"""The equations of the book, each as one pure function of tensors and named hyperparameters.

What only one chapter needs is in that chapter's ``equations.py``.
"""
