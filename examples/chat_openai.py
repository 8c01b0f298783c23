"""Have two conversations with a model that remembers the first one, using OpenAI's client.

    MEMORY_KEY=mem_… python examples/chat_openai.py

Requires `pip install openai`. MEMORY_URL defaults to http://localhost:8000, and MODEL to gpt-4.1-mini. On the site, set
`CHAT__UPSTREAM_BASE_URL` and `CHAT__UPSTREAM_API_KEY` to those of your model provider.
"""

import os
import sys
from uuid import uuid4

import openai
from openai.types.chat import ChatCompletionMessageParam

URL = os.environ.get("MEMORY_URL", "http://localhost:8000")


def main() -> None:
    memory = openai.OpenAI(base_url=f"{URL}/v1", api_key=os.environ["MEMORY_KEY"])
    person = f"example-{uuid4().hex[:8]}"
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": "I am Nora, and I restore kilns in Turin."}]
    answer(memory, person, "monday", said)
    # In this conversation, the model knows the first one only from memory.
    answer(memory, person, "friday", [{"role": "user", "content": "Where do I restore kilns?"}])


def answer(memory: openai.OpenAI, person: str, conversation: str, messages: list[ChatCompletionMessageParam]) -> None:
    """Stream the answer to the terminal."""
    sys.stdout.write(f"{conversation}: {messages[-1].get('content')}\n  ")
    stream = memory.chat.completions.create(
        model=os.environ.get("MODEL", "gpt-4.1-mini"),
        messages=messages,
        stream=True,
        extra_headers={"X-User-Id": person, "X-Session-Id": f"{person}-{conversation}"},
    )
    for part in stream:
        sys.stdout.write((part.choices[0].delta.content or "") if part.choices else "")
        sys.stdout.flush()
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
