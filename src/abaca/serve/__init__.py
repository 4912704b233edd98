"""A server for trained models: the service behind it, the events it remembers, its HTTP face and its page."""
