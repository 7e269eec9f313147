"""The Neuron backend: NxD Inference in an interpreter of its own, watched from here."""
