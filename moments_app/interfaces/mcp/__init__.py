"""Memory for assistants that use the Model Context Protocol: resources, tools and a prompt.

`server.py` defines these, `connection.py` determines the person, and `endpoint.py` serves HTTP.
"""
