"""Alignments as one HTML page: `alignment_page` writes the file, `page_data` chooses and packs what it shows.

page.html, page.css and script/ are what the browser gets. The page loads nothing from a network, and its content
security policy forbids it to.
"""
