"""Every equation of the book, each as one pure function of tensors and named hyperparameters."""
