"""Configuration files and run folders.

Read `errors` first, then `schema` (the keys, described by dataclasses, and the names of policies),
`validate` (plain data into dataclasses, by pydantic, and the JSON Schema for editors), `plain`
(dataclasses into plain data), `toml` (files, with lines of errors and help), `load` (model files,
with the recorded `inputs` of a study), `run_folder`, `code_files` (Python files that it
names), `frames` (columns of tables); `environment` and `digest` record the origin of a result.
"""
