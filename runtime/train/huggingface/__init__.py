"""Training with libraries of Hugging Face inside of a `TorchTrainer`."""
