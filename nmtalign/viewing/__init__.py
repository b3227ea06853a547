"""What is drawn: alignments in the terminal, in a figure and in a page, and the page kit of all HTML pages."""
