"""The command `jaxmech`."""

from jaxmech.cli.main import main as main
