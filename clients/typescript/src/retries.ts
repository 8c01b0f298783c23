/** Retries failed calls, if they can be repeated safely. */

type Fetch = (request: Request) => Promise<Response>;

const NOTHING_DONE = new Set([429, 503]); // the platform returns these before it executes a call
const UNKNOWN = new Set([408, 500, 502, 504]);
const FIRST_PAUSE = 250; // milliseconds
const LONGEST_PAUSE = 8_000;
const PATIENCE = 30_000; // for longer waits, return the response to the caller
const READS = /\/(memory\/(context|search))$/; // read-only calls that use POST
const APPENDS = /\/sessions\/[^/]+\/messages$/; // repeatable if all messages have external ids

/** Return a `fetch` that makes up to `attempts` attempts. */
export function patient(ask: Fetch, attempts: number): Fetch {
  return async (request) => {
    for (let attempt = 0; ; attempt++) {
      const answer = await ask(request.clone()).catch((error: unknown) => error);
      const response = answer instanceof Response ? answer : undefined;
      const pause = response?.ok ? undefined : pauseBefore(attempt, response, await isRepeatable(request));
      if (pause === undefined || attempt + 1 >= attempts || request.signal.aborted) {
        if (response === undefined) {
          throw answer;
        }
        return response;
      }
      await paused(pause, request.signal);
      request.signal.throwIfAborted();
    }
  };
}

/** Wait for some milliseconds, or until the caller aborts the call. */
function paused(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((wake) => {
    const timer = setTimeout(wake, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), wake()), { once: true });
  });
}

async function isRepeatable(request: Request): Promise<boolean> {
  const path = new URL(request.url).pathname;
  if (request.method !== "POST") {
    return request.method === "GET";
  }
  return READS.test(path) || (APPENDS.test(path) && hasExternalIds(await request.clone().json()));
}

function hasExternalIds(body: { messages?: { external_id?: unknown }[] }): boolean {
  return (body.messages ?? []).every((message) => Boolean(message.external_id));
}

function pauseBefore(attempt: number, response: Response | undefined, repeatable: boolean): number | undefined {
  const growing = Math.min(FIRST_PAUSE * 2 ** attempt, LONGEST_PAUSE) * (0.5 + Math.random() / 2);
  if (response === undefined || UNKNOWN.has(response.status)) {
    return repeatable ? growing : undefined;
  }
  if (!NOTHING_DONE.has(response.status)) {
    return undefined;
  }
  const asked = Number(response.headers.get("Retry-After") ?? NaN) * 1000;
  return Number.isNaN(asked) ? growing : asked <= PATIENCE ? Math.max(asked, growing) : undefined;
}
