"""The kernels themselves; importing any of these modules needs Triton."""
