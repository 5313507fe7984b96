"""Pages and charts: a figure is drawn once."""
