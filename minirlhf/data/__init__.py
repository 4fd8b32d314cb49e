"""Layer 2: record types, chat templates, toy tasks, loaders for real files."""
