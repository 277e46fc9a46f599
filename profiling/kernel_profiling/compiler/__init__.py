"""What the compiler knows, with no GPU."""
