"""The chat endpoint, `/v1/chat/completions` and `/v1/responses`: an OpenAI-compatible model that remembers.

A call gets the memory of its person and conversation, goes on to the configured upstream, and is answered byte by byte
as the upstream answers; afterwards the round is stored. Whatever fails in memory, the caller gets the answer. All of it
runs on the event loop; work on the database runs in threads, and none of it while the upstream answers.
"""
