"""Squall: train machine-learning models on short-lived functions."""
