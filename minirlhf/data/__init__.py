"""Record types, chat templates, toy tasks, loaders for real files."""
