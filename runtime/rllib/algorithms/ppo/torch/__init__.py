"""PPO in torch."""
