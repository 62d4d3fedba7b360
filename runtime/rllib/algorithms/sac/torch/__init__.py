"""The torch module and learner of SAC."""
