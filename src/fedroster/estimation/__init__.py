"""What we believe about clients and links."""
