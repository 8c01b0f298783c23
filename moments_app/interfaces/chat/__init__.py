"""The chat endpoint, `/v1/chat/completions` and `/v1/responses`: an OpenAI-compatible model with memory.

A call receives the memory of its person and conversation, and is forwarded to the configured upstream. The endpoint
relays the upstream's answer byte by byte, and then stores the round. If memory fails, the caller still gets the answer.
Everything runs on the event loop, except database work, which runs in threads and never while the upstream answers.
"""
