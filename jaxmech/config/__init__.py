"""Configuration files and run folders.

`errors` first, then `schema` (the keys, described by frozen dataclasses), `toml` (reading and
validation), `load` (model files), `run_folder`; `environment` and `digest` say what a result came
from.
"""
