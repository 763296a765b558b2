"""`jaxmech report`: `page` puts together what `sections` and `media` make of a run."""
