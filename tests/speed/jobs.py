"""Jobs for the workers of the benchmark, which import them by name."""

import os
import signal
import time

import numpy as np

from experiments.speed.routes import Prepared, Unavailable


def given(*values: float) -> Prepared:
    return Prepared(0.5, lambda: (np.array(values), np.zeros(2)))


def slow() -> Prepared:
    time.sleep(60)
    raise AssertionError


def absent() -> Prepared:
    raise Unavailable("no such thing here")


def raising() -> Prepared:
    raise ValueError("first line\nsecond line")


def dying() -> Prepared:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
