"""Reports on runs and data sets: curves, explanations, the glossary of metrics, HTML pages and their
templates."""
