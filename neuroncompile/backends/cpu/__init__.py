"""The embedded target: torch.export and AOTInductor, run without torch's Python."""
