"""Types at the place where Ray has them."""
