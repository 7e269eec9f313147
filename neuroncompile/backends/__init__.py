"""What turns a spec into files and files into an engine: one package a backend."""
