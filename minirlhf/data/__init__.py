"""Layer 2: record types, chat templates, tiny worlds, loaders for real files."""
