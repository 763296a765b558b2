"""`jm.view`: a motion as a page for the browser, which viser draws in three dimensions.

`nodes` are lines, surfaces, dots, arrows and a text over time, `shapes` makes them from the shapes
of bodies and `loads` from the loads of joints; `page` writes the page.
"""
