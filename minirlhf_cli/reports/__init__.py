"""Pages and tables of what the commands measured: evaluation, specification, survey of data."""
