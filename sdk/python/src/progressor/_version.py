VERSION = "0.1.0"  # the version in pyproject.toml
