"""Ways into a machine, each an `autoscaler.provider.Shell`. `terminal` joins the caller's terminal with a
remote one."""
