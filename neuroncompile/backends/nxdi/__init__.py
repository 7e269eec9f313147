"""The Neuron backend: what is planned for it; compiling comes with a later version."""
