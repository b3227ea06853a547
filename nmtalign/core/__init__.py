"""The model: embeddings, encoders, decoders, readout and loss, their weights for search, and the device.

It knows nothing of text, of files, and of training.
"""
