"""What is written down, as pydantic models. Everybody may read it; it knows nobody."""
