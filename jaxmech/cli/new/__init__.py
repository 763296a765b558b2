"""`jaxmech new`: `folder` writes a study from the files of `template/`."""
