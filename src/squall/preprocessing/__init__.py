"""Preprocessing: partial → merge → finish statistics, and fitted transforms of raw blocks."""
