"""What plugins of runtime environments are written with: `plugin` and `context`."""
