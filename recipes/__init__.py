"""What is made of scripts: nothing in the core imports a recipe."""
