"""Random inputs that the checks of several chapters share."""
