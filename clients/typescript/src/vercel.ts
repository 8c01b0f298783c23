/**
 * A middleware for the Vercel AI SDK. It adds memory to a model's prompts, and stores the conversation.
 *
 *     const model = wrapLanguageModel({ model: openai("gpt-4.1-mini"), middleware: remembering(memory) });
 *
 * The model is called directly, at its own URL. A context for the user's message is inserted before the conversation.
 * The message is added to memory, and so is the complete answer. A step after a tool's result has no new message, so it
 * is passed to the model unchanged.
 */

import type { LanguageModelV3Middleware as Middleware } from "@ai-sdk/provider";

import type { ContextOptions, Memory } from "./index.js";

type Prompt = Parameters<NonNullable<Middleware["transformParams"]>>[0]["params"]["prompt"];
type Remembered = { role: string; content: string }[];

/** The layers for a prompt that already contains the conversation. */
const BESIDE_HISTORY: NonNullable<ContextOptions["layers"]> = ["collective", "user", "moments", "retrieved", "entities"];

/** Return the middleware for a person's conversation. `options` are context options, such as `max_tokens`. */
export function remembering(memory: Memory, options: Omit<ContextOptions, "format"> = {}): Middleware {
  const keep = async (text: string): Promise<void> => {
    if (text !== "") {
      await memory.add({ role: "assistant", content: text });
    }
  };
  return {
    specificationVersion: "v3",
    transformParams: async ({ params }) => {
      const message = newest(params.prompt);
      if (message === "") {
        return params;
      }
      const layers = hasHistory(params.prompt) ? { layers: BESIDE_HISTORY } : {};
      const { context } = await memory.context(message, { ...layers, ...options, format: "messages" });
      await memory.add(message);
      return { ...params, prompt: reminded(params.prompt, context as Remembered) };
    },
    wrapGenerate: async ({ doGenerate }) => {
      const answer = await doGenerate();
      await keep(answer.content.map((part) => (part.type === "text" ? part.text : "")).join(""));
      return answer;
    },
    wrapStream: async ({ doStream }) => {
      const { stream, ...rest } = await doStream();
      let text = "";
      const listening: typeof stream = stream.pipeThrough(
        new TransformStream({
          transform(part, passedOn) {
            text += part.type === "text-delta" ? part.delta : "";
            passedOn.enqueue(part);
          },
          flush: () => keep(text),
        }),
      );
      return { ...rest, stream: listening };
    },
  };
}

/** Return the user's message at the end of the prompt, or "" if the prompt ends with, for example, a tool's result. */
function newest(prompt: Prompt): string {
  const last = prompt[prompt.length - 1];
  if (last?.role !== "user") {
    return "";
  }
  return last.content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}

function hasHistory(prompt: Prompt): boolean {
  return prompt.filter((message) => message.role !== "system").length > 1;
}

/** Insert the context after the caller's instructions, because some providers accept system messages only there. */
function reminded(prompt: Prompt, remembered: Remembered): Prompt {
  const first = prompt.findIndex((message) => message.role !== "system");
  const [instructions, conversation] = [prompt.slice(0, first), prompt.slice(first)];
  const known = remembered.filter((message) => message.role === "system").map((message) => message.content);
  const turns = remembered.slice(0, -1).flatMap(asTurn); // the last one is the user's message
  return [...instructions, { role: "system", content: known.join("\n\n") }, ...turns, ...conversation];
}

function asTurn({ role, content }: Remembered[number]): Prompt {
  return role === "user" || role === "assistant" ? [{ role, content: [{ type: "text", text: content }] }] : [];
}
