"""The torch module and learner of DQN."""
