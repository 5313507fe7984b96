"""Claims, their tests, and the pages of reproductions."""
