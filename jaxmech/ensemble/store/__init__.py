"""The run folder of a study: `folder` creates and continues it, `results` reads it."""
