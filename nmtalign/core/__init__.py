"""The model: cells, encoder, attention, decoder, readout, initialisation. It knows nothing of files."""

from nmtalign.core.devices import make_products_reproducible

make_products_reproducible()  # MKL accepts this only before its first product
