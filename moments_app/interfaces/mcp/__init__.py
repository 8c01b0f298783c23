"""Memory for assistants that speak the Model Context Protocol: resources to read, tools to call, a prompt.

`server.py` has what they see, `connection.py` says whose memory that is, `endpoint.py` is the door for HTTP.
"""
