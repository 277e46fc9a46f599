"""The project as a library: what `from beamsearch import …` gives, and what the verbs call."""
