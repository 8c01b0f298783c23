"""Memory for assistants that speak the Model Context Protocol: resources to read, tools to call, a prompt.

`server.py` is what they see, `connection.py` whose memory that is, `endpoint.py` the door for HTTP.
"""
