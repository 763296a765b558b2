"""Benchmarks over the history of the repository, by airspeed velocity (asv).

    asv run --config experiments/history/asv.conf.json --quick     # the last commit of main
    asv publish --config experiments/history/asv.conf.json         # pages of all results

`benchmarks` holds what is timed. First calls are CPU seconds in a fresh process with an empty store
of native code; speeds are of warm calls.
"""
