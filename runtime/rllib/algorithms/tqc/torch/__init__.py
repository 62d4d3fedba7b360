"""The torch module and learner of TQC."""
