"""One model of a report (`document`), written as Markdown (`markdown`) or as one HTML page (`html_page`)."""
