"""`python -m jaxmech`: the command line."""

import sys

from jaxmech.cli import main

if __name__ == "__main__":
    sys.exit(main())
