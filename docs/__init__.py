"""What people read: the README's answers, the book (../notebooks), and the site. `python -m docs --help` makes them."""
