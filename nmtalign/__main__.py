"""`python -m nmtalign` is `nmtalign`."""

from nmtalign.cli.app import main

if __name__ == "__main__":
    main()
