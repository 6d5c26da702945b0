"""The steps of tools/gpu_check."""
