"""The moves of a run as they are kept for its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.integrate.trajectory import StepRecord

NAN = np.nan
# Two steps and a save between them, the second step up to event 1; rows beyond them as in memory.
MOVES = jnp.array([[0.1, 0, 0], [-3.0, 0, 0], [0.2, 2, 5], *3 * [[NAN] * 3]])
STARTS = jnp.array([[1.0, 2.0, 0.0], [1.5, 2.5, 0.1], [NAN, NAN, NAN]])
RECORD = StepRecord(MOVES, STARTS, jnp.asarray(3), jnp.asarray(4))


def test_rows_beyond_the_moves_are_not_read() -> None:
    usual, begin = jnp.asarray(0.5), jnp.asarray(0.0)
    moves = [RECORD.move(jnp.asarray(k), begin, usual) for k in range(4)]
    assert [float(x.size) for x in moves] == [0.1, 0.5, 0.2, 0.5]
    assert [int(x.save) for x in moves] == [0, 3, 0, 0]
    assert [(int(x.which), int(x.row)) for x in moves] == [(-1, -1), (-1, -1), (1, 4), (-1, -1)]
    assert [bool(x.is_made) for x in moves] == [True, True, True, False]


def test_a_search_for_nan_finds_none_in_rows_that_were_not_written() -> None:
    with jax.debug_nans(True):
        masked = RECORD.finished(jnp.asarray(3), jnp.asarray(4))
    assert np.isnan(RECORD.finished(jnp.asarray(3), jnp.asarray(4)).moves).any()
    assert np.isfinite(masked.moves).all()
    np.testing.assert_array_equal(masked.moves[:3], MOVES[:3])
    np.testing.assert_array_equal(masked.starts, [*STARTS[:2], [0, 0, 0]])
