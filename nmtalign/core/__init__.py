"""The model: cells, encoder, attention, decoder, readout, initialisation. It knows nothing of files."""
