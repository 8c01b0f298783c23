"""Memory for assistants that speak the Model Context Protocol: resources to read, tools to call, a prompt.

`server.py` has what assistants see, `connection.py` determines the person, and `endpoint.py` serves HTTP.
"""
