"""Training: loop, optimisers, validation, resumable state. It emits events and prints nothing."""
