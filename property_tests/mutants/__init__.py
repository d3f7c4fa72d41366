"""Broken twins of the guards, one module for each machine that must catch them."""
