"""Compile a language model for AWS Neuron once, prove what it is, run it anywhere."""

__version__ = "0.1.0"
