"""What programs import."""
