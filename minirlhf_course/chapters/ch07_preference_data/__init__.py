"""Chapter 7, Preference data: what only it needs."""
