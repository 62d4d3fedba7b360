"""One module per verb or noun: parse, call, print. Imported by `clusterctl.app` only, so their imports stay
light."""
