"""Networks that default modules are made of: configurations (`configs`), the choice of them by spaces (`catalog`) and
their implementation (`torch`). Importing the first two does not import torch.
"""
