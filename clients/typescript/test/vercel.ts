/** Tests the middleware with the real AI SDK, a site and a model: MEMORY_URL, MEMORY_KEY, OPENAI_BASE_URL. */

import assert from "node:assert/strict";

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool, wrapLanguageModel, type ModelMessage } from "ai";
import { Memory } from "memory-platform-client";
import { remembering } from "memory-platform-client/vercel";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env["OPENAI_BASE_URL"] ?? "", apiKey: "sk-x" });
const options = { url: process.env["MEMORY_URL"] ?? "", key: process.env["MEMORY_KEY"] ?? "" };

async function said(memory: Memory): Promise<string[]> {
  return (await memory.messages()).messages.map((message) => `${message.role}: ${message.content}`);
}

// A stream is passed on as it arrives, and stored when it is complete.
const streaming = new Memory("vera", { ...options, sessionId: "stream" });
const middleware = remembering(streaming, { max_tokens: 1000 });
const model = wrapLanguageModel({ model: openai("gpt-4.1-mini"), middleware });
const parts: string[] = [];
for await (const part of streamText({ model, prompt: "I keep bees." }).textStream) {
  parts.push(part);
}
assert.deepEqual(parts, ["No", "ted."]);
assert.deepEqual(await said(streaming), ["user: I keep bees.", "assistant: Noted."]);

// If the caller sends the whole conversation, only the newest message is new.
const messages: ModelMessage[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "I keep bees." },
  { role: "assistant", content: "Noted." },
  { role: "user", content: "And hens." },
];
const { request } = await generateText({ model, messages });
assert.equal((await said(streaming)).length, 4);
const asked = JSON.stringify(request.body);
assert.ok(asked.includes("MemoryContext") && asked.indexOf("MemoryContext") > asked.indexOf("Be brief."), asked);
assert.equal(asked.split("And hens.").length, 2, asked);

// A round with a tool call is stored as a message and an answer.
const acting = new Memory("vera", { ...options, sessionId: "tool" });
const look = tool({ inputSchema: z.object({ at: z.string() }), execute: () => "Three hives." });
const able = wrapLanguageModel({ model: openai.chat("gpt-4.1-mini"), middleware: remembering(acting) });
await generateText({ model: able, prompt: "How many hives?", tools: { look }, stopWhen: stepCountIs(3) });
assert.deepEqual(await said(acting), ["user: How many hives?", "assistant: Noted."]);

process.stdout.write("All checks passed.\n");
