"""Parameters recovered from synthetic recordings, and the coverage of their intervals."""
