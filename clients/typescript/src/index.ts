/**
 * A client for the memory platform. A `Memory` is one person's memory.
 *
 *     const memory = new Memory("nora", { url: "http://localhost:8000", key: "mem_…" });
 *     await memory.add("I restore kilns in Turin.");
 *     console.log((await memory.context("Where do I restore kilns?")).context);
 *
 * `memory.api` calls any operation of the API, with the types of the OpenAPI schema.
 */

import createClient, { type Client } from "openapi-fetch";

import { patient } from "./retries.js";
import type { components, paths } from "./schema.js";

export type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Message = Schemas["MessageInputRequest"];
export type Appended = Schemas["AppendAnswer"];
export type Context = Schemas["ContextAnswer"];
export type Found = Schemas["SearchAnswer"];
export type LiveMessages = Schemas["LiveMessages"];
export type ContextOptions = Omit<Schemas["ContextInputRequest"], "user_id" | "agent_id" | "session_id" | "query">;
export type SearchOptions = Omit<Schemas["SearchInputRequest"], "user_id" | "agent_id" | "query">;

/** The maximum number of messages in a request. */
const BATCH = 500;

export interface Options {
  /** The site's URL. */
  url: string;
  /** An API key. */
  key: string;
  /** Your id for the conversation. */
  sessionId?: string;
  /** Your id for the assistant. */
  agentId?: string;
  /** The maximum number of attempts per call. */
  attempts?: number;
  /** Replaces the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

/** The platform rejected a call. Each of the `errors` has a code, a detail and a field. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly errors: Schemas["Error"]["errors"],
  ) {
    const reasons = errors.map(({ attr, detail }) => (attr ? `${attr}: ${detail}` : detail));
    super(`${status}: ${reasons.join("; ") || "no error details"}`);
    this.name = "Refused";
  }
}

/** One person's memory. `userId` is your id for the person. */
export class Memory {
  /** All operations of the API. */
  readonly api: Client<paths>;

  constructor(
    readonly userId: string,
    private readonly options: Options,
  ) {
    this.api = createClient<paths>({
      baseUrl: options.url.replace(/\/+$/, ""),
      headers: { Authorization: `Bearer ${options.key}` },
      fetch: patient(options.fetch ?? ((request) => fetch(request)), options.attempts ?? 5),
    });
  }

  /** Return the same person's memory with another conversation. */
  session(sessionId: string): Memory {
    return new Memory(this.userId, { ...this.options, sessionId });
  }

  /** Add a text from the user, a message, or several messages. External ids prevent duplicates after retries. */
  async add(said: string | Message | Message[], more: { source?: string; contextId?: string } = {}): Promise<Appended> {
    const messages = prepared(said);
    const answers: Appended[] = [];
    for (let first = 0; first < Math.max(messages.length, 1); first += BATCH) {
      answers.push(await this.append(messages.slice(first, first + BATCH), more));
    }
    const last = answers[answers.length - 1] as Appended;
    return {
      ...last,
      messages: answers.flatMap((answer) => answer.messages),
      jobs: answers.flatMap((answer) => answer.jobs),
    };
  }

  /** Return the memory for a model's next answer. Send its `context` to the model. */
  async context(query = "", options: ContextOptions = {}): Promise<Context> {
    const body = { ...this.about(), session_id: this.sessionId, query, ...options };
    return answered(await this.api.POST("/api/v1/memory/context", { body }));
  }

  /** Search memory. Return the results, best first. */
  async search(query: string, options: SearchOptions = {}): Promise<Found> {
    const body = { ...this.about(), query, ...options };
    return answered(await this.api.POST("/api/v1/memory/search", { body }));
  }

  /** Return the conversation's messages that a model needs for its next answer. */
  async messages(limit?: number): Promise<LiveMessages> {
    const query = { user_id: this.userId, view: "live" as const, ...(limit === undefined ? {} : { limit }) };
    const path = { session_id: this.sessionId };
    const answer = await this.api.GET("/api/v1/sessions/{session_id}/messages", { params: { path, query } });
    return answered(answer) as LiveMessages; // only `view=all` returns pages
  }

  private get sessionId(): string {
    return this.options.sessionId ?? "default";
  }

  private about(): { user_id: string; agent_id?: string } {
    const agent = this.options.agentId;
    return { user_id: this.userId, ...(agent === undefined ? {} : { agent_id: agent }) };
  }

  private async append(messages: Message[], more: { source?: string; contextId?: string }): Promise<Appended> {
    const body = {
      ...this.about(),
      messages,
      ...(more.source === undefined ? {} : { source: more.source }),
      ...(more.contextId === undefined ? {} : { context_id: more.contextId }),
    };
    const params = { path: { session_id: this.sessionId } };
    return answered(await this.api.POST("/api/v1/sessions/{session_id}/messages", { params, body }));
  }
}

function prepared(said: string | Message | Message[]): Message[] {
  const messages: Message[] =
    typeof said === "string" ? [{ role: "user", content: said }] : Array.isArray(said) ? said : [said];
  return messages.map((message) => ({ ...message, external_id: message.external_id ?? crypto.randomUUID() }));
}

function answered<Answer>(given: { data?: Answer; error?: unknown; response: Response }): Answer {
  if (given.data !== undefined) {
    return given.data;
  }
  const told = given.error as Partial<Schemas["Error"]> | undefined;
  throw new Refused(given.response.status, Array.isArray(told?.errors) ? told.errors : []);
}
