"""The command `jaxmech`: `main` holds the commands, `parser` their arguments, `help` their texts.

`resolve` finds the system that a command names, and lists the models, `doctor` examines the
installation, `jax_versions` rejects releases of jax that are known to be wrong, and `interrupt`
handles signals. `studies` are the commands `ensemble` and `failure`, `stability` are `modes` and
`equilibria`, `new_study` is `new`, with the files of `template/`, and `bench` that of its name;
`fit/`, `report/` and `audit/` have folders of their own.
"""

from jaxmech.cli.main import main as main
