"""Text in, text out: translating lines and scoring given translations."""
