"""Made-up inputs that the checks of several chapters draw."""
