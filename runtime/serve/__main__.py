"""`python -m runtime.serve`: the command line `serve`."""

from runtime.serve._operations.cli import main

if __name__ == "__main__":
    main()
