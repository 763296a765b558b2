"""`jaxmech report`: one page about a study or a fit."""
