"""The job `report`: the other jobs' findings on one HTML page."""
