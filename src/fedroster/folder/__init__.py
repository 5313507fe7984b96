"""What happened, as values, as lines that hold each other's digests, and as files in a folder that has one writer."""
