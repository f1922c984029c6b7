"""The job `audit`: is every acknowledged record in its topic?"""
