"""A bundle as a service: the application, its processes, and how many of them."""
