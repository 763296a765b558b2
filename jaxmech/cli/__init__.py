"""The command `jaxmech`: `main` holds the commands, `parser` their arguments, `help` their texts.

`resolve` finds the system that a command names, `catalogue` lists the models, `doctor` examines the
installation, `jax_versions` rejects releases of jax that are known to be wrong, and `interrupt`
handles signals. `studies` is the command `ensemble`, and `failure` that of its name; `stability`
are `modes` and `equilibria`; `fit/`, `report/`, `audit/` and `new/` have folders of their own.
"""

from jaxmech.cli.main import main as main
