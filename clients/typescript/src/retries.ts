/** Retries failed calls, if they can be repeated safely. */

type Fetch = (request: Request) => Promise<Response>;

const NOTHING_DONE = new Set([429, 503]); // the platform returns these before it executes a call
const UNKNOWN = new Set([408, 500, 502, 504]);
const FIRST_PAUSE = 250; // milliseconds
const LONGEST_PAUSE = 8_000;
const PATIENCE = 30_000; // for longer waits, return the response to the caller
const READS = /\/(memory\/(context|search))$/; // read-only calls that use POST
const APPENDS = /\/sessions\/[^/]+\/messages$/; // repeatable because of external ids

/** Return a `fetch` that makes up to `attempts` attempts. */
export function patient(ask: Fetch, attempts: number): Fetch {
  return async (request) => {
    for (let attempt = 0; ; attempt++) {
      const answer = await ask(request.clone()).catch((error: unknown) => error);
      const response = answer instanceof Response ? answer : undefined;
      const pause = pauseBefore(attempt, response, isRepeatable(request));
      if (pause === undefined || attempt + 1 >= attempts || request.signal.aborted) {
        if (response === undefined) {
          throw answer;
        }
        return response;
      }
      await new Promise((wake) => setTimeout(wake, pause));
    }
  };
}

function isRepeatable(request: Request): boolean {
  const path = new URL(request.url).pathname;
  return request.method === "GET" || (request.method === "POST" && (READS.test(path) || APPENDS.test(path)));
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
