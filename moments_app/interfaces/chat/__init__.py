"""The chat endpoint, `/v1/chat/completions` and `/v1/responses`: an OpenAI-compatible model with memory.

The endpoint adds the memory of the person and the conversation to a call, and forwards it to the configured upstream.
It relays the upstream's answer byte by byte, and then stores the round. If memory fails, the caller still gets the
answer. Database work runs in threads, and never while the upstream answers. Everything else runs on the event loop.
"""
