"""A server for trained models: the service, the store of events, the HTTP interface and the page."""
