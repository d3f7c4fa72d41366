"""The commands of `tocsin` beside `up`, by noun."""
