"""Parameters recovered from synthetic recordings: do their intervals contain the truth?"""
