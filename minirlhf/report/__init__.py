"""Layer 7: what a run or a data set looks like to a person: curves, explanations, the glossary of metrics, pages and their templates."""
