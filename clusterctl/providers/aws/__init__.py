"""Machines of Amazon EC2: `provider.AwsMachines`. Pure parts (`errors`, `launches`, `policies`, `tagging`, `types`)
decide, the others ask the API, each for its own kind of thing. boto3 is imported in `clients` alone, when it is used.
"""
