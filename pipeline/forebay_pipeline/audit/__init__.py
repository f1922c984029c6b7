"""The job `audit`: is everything that was acknowledged in the topics?"""
