"""What a spec says of its platform: one module for each type of provider."""
