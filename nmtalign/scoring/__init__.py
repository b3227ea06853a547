"""Scores of translations: sacreBLEU's metrics, by source length, and without unknown words."""
