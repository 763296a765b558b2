"""`jaxmech report`: `page` fills the templates in `templates/` with what is known of a run.

`tables` and `answers` read the tables of the page from the run folder, as plain data. The look of
the page is in `templates/report.html`, `parts.html` and `style.css` alone.
"""
