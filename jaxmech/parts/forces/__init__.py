"""Forces on bodies: weights, springs, dampers and loads, and forces in joints.

`basic` has gravity, springs, dampers, torques, applied forces and laws of force between two
bodies, made of `elements`; `in_joints` has servos and friction in joints.
"""
