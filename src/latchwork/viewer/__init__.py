"""`latchwork view`: a page on which one types tokens and watches what the units do."""
