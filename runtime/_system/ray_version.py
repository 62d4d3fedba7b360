"""The version of Ray whose API this engine has."""

RAY_VERSION = "2.60.0"
RAY_COMMIT = ""
