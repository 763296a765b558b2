"""`jaxmech report`: `page` fills the templates in `templates/` with what is known of a run.

`fit_page` does so for a fit. `tables` and `answers` read the tables of the page from the run
folder, as plain data. The look of the pages is in `templates/`
alone.
"""
