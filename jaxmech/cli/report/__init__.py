"""`jaxmech report`: one page about a study or a fit.

`page` is that about a study, `fit_page` that about a fit, and `failure_page` that about a
probability of failure, which `jaxmech failure` writes. All consist of the parts of
`layout`, which fills the templates in `templates/`, where the look of the pages is. `quantities`
are what a study asks for, `influence` is what they depend on, and `clips` are members in motion.
`tables` and `answers` read tables from the run folder, as plain data.
"""
