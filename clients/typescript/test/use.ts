/** Tests the built client with a site: MEMORY_URL and MEMORY_KEY. The exit status is 0 if all checks pass. */

import assert from "node:assert/strict";

import { Memory, Refused, type Message } from "memory-platform-client";

const url = process.env["MEMORY_URL"] ?? "";
const key = process.env["MEMORY_KEY"] ?? "";

const memory = new Memory("ada+b?c", { url, key, agentId: "coach" });
const said: Message[] = [
  { role: "user", content: "I keep bees." },
  { role: "assistant", content: "How many hives?" },
];
const added = await memory.add(said);
assert.deepEqual(
  added.messages.map((message) => message.created),
  [true, true],
);
assert.equal((await memory.messages()).messages[0]?.content, "I keep bees.");
assert.ok(String((await memory.session("friday").context("What do I keep?", { max_tokens: 800 })).context).includes("bees"));
const parts = [{ type: "text", text: "This is a hive." }, { type: "image_url", image_url: { url: "https://bees.example/a.png" } }];
await memory.session("pictures").add({ role: "user", content: parts });
assert.equal((await memory.session("pictures").messages()).messages[0]?.content, "This is a hive.");
assert.equal((await memory.search("bees", { kinds: ["turn"] })).results[0]?.content, "I keep bees.");

// Every operation has types: a query parameter that the schema doesn't have is a compiler error.
const moments = await memory.api.GET("/api/v1/moments", { params: { query: { user_id: memory.userId, limit: 3 } } });
assert.equal(moments.data?.total, 0);
// @ts-expect-error: there is no such parameter
await memory.api.GET("/api/v1/moments", { params: { query: { person: "ada" } } });

// After a lost response, the message is stored only once.
let lost = 1;
const lossy = async (request: Request) => {
  const response = await fetch(request);
  if (lost-- > 0) {
    throw new TypeError("the connection was reset");
  }
  return response;
};
const flaky = new Memory("bo", { url, key, fetch: lossy });
assert.deepEqual(
  (await flaky.add("I keep geese.")).messages.map((message) => message.created),
  [false],
);
assert.equal((await flaky.messages()).messages.length, 1);

// A message without an external id is not sent again.
lost = 1;
const params = { path: { session_id: "default" } };
const body = { user_id: "bo", messages: [{ role: "user" as const, content: "I keep ducks." }] };
await assert.rejects(flaky.api.POST("/api/v1/sessions/{session_id}/messages", { params, body }), TypeError);
assert.equal((await flaky.messages()).messages.length, 2);

// A caller can abort a call during the pause before a retry.
const started = Date.now();
const full = new Memory("bo", { url, key, fetch: async () => new Response("", { status: 503, headers: { "Retry-After": "20" } }) });
const query = { user_id: "bo" };
const signal = AbortSignal.timeout(100);
await assert.rejects(full.api.GET("/api/v1/moments", { params: { query }, signal }), { name: "TimeoutError" });
assert.ok(Date.now() - started < 10_000);

await assert.rejects(memory.search(""), { name: "Refused", message: /^400: query: / });

await assert.rejects(
  new Memory("ada", { url, key: "mem_wrong" }).search("bees"),
  (error) => error instanceof Refused && error.status === 401,
);
console.log("All checks passed.");
