"""Parameters recovered from synthetic recordings: are their intervals honest?"""
