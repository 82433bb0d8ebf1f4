"""What a student takes from its teacher, as losses and objectives."""
