"""Stops, contacts, ropes and dry friction: parts with inequalities.

`base` makes unilateral constraints of gaps, `in_joints` are gaps of the coordinates of joints and
dry friction in them, and `between_points` gaps of points of bodies; `ropes` run from body to body.
"""
