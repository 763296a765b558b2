"""Events during a run: users define an `event` and its transition; an `event_set` is all of them.

`log` has the events of a run so far, and those of a `Solution`. `crossing` locates events in a step
whose ends have different signs, and those of functions that are zero, `extremum_search` those
between ends of equal sign; `turns` puts them together for a fixed step, which it bounds by the
functions. `gaps` are those of unilateral constraints, and `friction` sticks and slides; `impacts`
decides by the law in `coulomb` what an event does to them, and `contact_events` is what they add to
an `event_set`.
"""
