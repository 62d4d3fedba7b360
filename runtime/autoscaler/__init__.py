"""What a program may tell the autoscaler. It only writes demand to the control store; deciding is done elsewhere."""
