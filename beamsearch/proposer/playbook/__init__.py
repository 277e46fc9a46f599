"""The thinker that needs no model."""
