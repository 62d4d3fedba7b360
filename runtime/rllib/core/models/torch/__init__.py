"""The networks in torch."""
