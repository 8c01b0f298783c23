"""Search a person's memory, and rank what is found."""
