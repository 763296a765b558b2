"""Contacts of curved bodies: cams, and curves and ellipsoids that roll.

`profiles` makes closed curves, and has the points of curves that touch. `base` is what contacts
share, `curves` has the elements of contacts in the plane; `rollers` has those in space, and makes
the joints.
"""

from jaxmech.parts.contacts.profiles import polar_profile as polar_profile
from jaxmech.parts.contacts.profiles import spline_profile as spline_profile
from jaxmech.parts.contacts.rollers import cam as cam
from jaxmech.parts.contacts.rollers import flat_follower as flat_follower
from jaxmech.parts.contacts.rollers import rolling_ellipsoid as rolling_ellipsoid
from jaxmech.parts.contacts.rollers import rolling_profile as rolling_profile
from jaxmech.parts.contacts.rollers import rolling_profiles as rolling_profiles
