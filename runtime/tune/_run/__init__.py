"""What carries an experiment out: runners, folders, and the program that waits."""
