"""One condition a file, each a pure reducer over the points of one series."""
