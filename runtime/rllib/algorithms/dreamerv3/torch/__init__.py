"""DreamerV3 in torch."""
