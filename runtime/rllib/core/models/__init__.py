"""Networks that default modules are made of: configurations (`configs`), the choice of them by spaces (`catalog`) and
their implementation (`torch`), which knows no configuration. Only the latter imports torch.
"""
