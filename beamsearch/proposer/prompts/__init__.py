"""What a model is asked, as text."""
