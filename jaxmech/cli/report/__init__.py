"""`jaxmech report`: one page about a study or a fit.

`page` is that about a study, `fit_page` that about a fit, and `failure_page` that about a
probability of failure, which `jaxmech failure` writes. All consist of the parts of
`layout`, which fills the templates in `templates/`, where the look of the pages is, and has the
members in motion. `quantities` are what a study asks for, and what they depend on, and `tables` are
read from the run folder, as plain data.
"""
