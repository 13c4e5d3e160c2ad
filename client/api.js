/**
 * The server, asked over HTTP. Every failure is an ApiError that carries the problem document, whose `detail` and `fix` are
 * written for people; a 401 anywhere is told to `onSignedOut` as well.
 */

/** What the server said when it did not do what was asked. */
export class ApiError extends Error {
  /** @param {number} status 0 when no answer came @param {any} problem */
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    /** @type {string} */ this.detail = problem.detail || problem.title || `The server answered ${status}.`;
    /** @type {string} */ this.fix = problem.fix || "";
    this.problem = problem;
  }
}

/** @type {() => void} */
let signedOut = () => {};
/** @param {() => void} listener */
export const onSignedOut = (listener) => {
  signedOut = listener;
};

/**
 * @param {string} method
 * @param {string} path
 * @param {{ body?: any, headers?: Record<string, string>, signal?: AbortSignal, anonymous?: boolean }} [options]
 * @returns {Promise<Response>}
 */
async function ask(method, path, { body, headers = {}, signal, anonymous = false } = {}) {
  /** @type {Record<string, string>} */
  const all = { Accept: "application/json, application/octet-stream", ...headers };
  if (method !== "GET") all["X-LossGuard"] = "1";
  if (body !== undefined) all["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "The server was not reached.", fix: "Check that it runs and try again." });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && !anonymous) signedOut();
  throw new ApiError(response.status, problem);
}

/** @param {string} method @param {string} path @param {any} [options] */
const json = async (method, path, options) => {
  const response = await ask(method, path, options);
  return response.status === 204 ? null : response.json();
};

const run = (/** @type {string} */ id) => `/api/runs/${encodeURIComponent(id)}`;
const incident = (/** @type {string} */ id, /** @type {string} */ incidentId) =>
  `${run(id)}/incidents/${encodeURIComponent(incidentId)}`;
const rule = (/** @type {string} */ id) => `/api/rules/${encodeURIComponent(id)}`;
const backtest = (/** @type {string} */ id) => `/api/backtests/${encodeURIComponent(id)}`;
const webhook = (/** @type {string} */ id) => `/api/webhooks/${encodeURIComponent(id)}`;

export const api = {
  signIn: (/** @type {string} */ code) => json("POST", "/api/session", { body: { code }, anonymous: true }),
  signOut: () => json("DELETE", "/api/session"),
  me: () => json("GET", "/api/me"),
  runs: async () => (await json("GET", "/api/runs")).runs,
  run: (/** @type {string} */ id) => json("GET", run(id)),
  alerts: async (open = false) => (await json("GET", `/api/alerts?open=${open}&limit=200`)).alerts,
  rules: async () => (await json("GET", "/api/rules")).rules,
  /** @returns {Promise<import("./clauses.js").Table>} */
  clauses: () => json("GET", "/api/clauses"),
  detectors: async () => (await json("GET", "/api/detectors")).detectors,
  addRule: (/** @type {any} */ body) => json("POST", "/api/rules", { body }),
  changeRule: (/** @type {string} */ id, /** @type {any} */ body) => json("PUT", rule(id), { body }),
  deleteRule: (/** @type {string} */ id) => json("DELETE", rule(id)),
  resetRule: (/** @type {string} */ id) => json("POST", `${rule(id)}/reset`, { body: {} }),
  startBacktest: (/** @type {any} */ body) => json("POST", "/api/backtests", { body }),
  backtest: (/** @type {string} */ id) => json("GET", backtest(id)),
  /**
   * A curve of a log that came with a backtest.
   * @param {string} id @param {number} log its number @param {string} name @param {number} points
   * @param {AbortSignal} [signal]
   * @returns {Promise<ArrayBuffer>}
   */
  logSeries: async (id, log, name, points, signal) => {
    const query = new URLSearchParams({ series: name, points: String(points) });
    return (await ask("GET", `${backtest(id)}/logs/${log}/points?${query}`, { signal })).arrayBuffer();
  },
  cancelBacktest: (/** @type {string} */ id) => json("DELETE", backtest(id)),
  incidents: async (open = false) => (await json("GET", `/api/incidents?${open ? "open=true&" : ""}limit=100`)).incidents,
  incident: (/** @type {string} */ id, /** @type {string} */ incidentId) => json("GET", incident(id, incidentId)),
  acknowledge: (/** @type {string} */ id, /** @type {string} */ incidentId, /** @type {string} */ note) =>
    json("POST", `${incident(id, incidentId)}/acknowledge`, { body: note ? { note } : {} }),
  silences: async () => (await json("GET", "/api/silences")).silences,
  silence: (/** @type {any} */ body) => json("POST", "/api/silences", { body }),
  endSilence: (/** @type {string} */ id) => json("DELETE", `/api/silences/${encodeURIComponent(id)}`),
  hold: (/** @type {string} */ id, /** @type {any} */ body) => json("PUT", `${run(id)}/hold`, { body }),
  liftHold: (/** @type {string} */ id) => json("DELETE", `${run(id)}/hold`),
  /**
   * @param {string} id @param {string} name @param {number} from @param {number} to @param {number} points
   * @param {AbortSignal} [signal]
   * @returns {Promise<ArrayBuffer>}
   */
  series: async (id, name, from, to, points, signal) => {
    const query = new URLSearchParams({
      name,
      points: String(points),
      ranks: "8", // of more, one line and the band
      from_step: String(Math.floor(from)),
      to_step: String(Math.ceil(to)),
    });
    return (await ask("GET", `${run(id)}/series?${query}`, { signal })).arrayBuffer();
  },
  /**
   * @param {string} id @param {any} body @param {string} key
   * @returns {Promise<{ command: any, created: boolean }>} not created: the same was ordered before
   */
  command: async (id, body, key) => {
    const response = await ask("POST", `${run(id)}/commands`, { body, headers: { "Idempotency-Key": key } });
    return { command: await response.json(), created: response.status === 202 };
  },
  pin: (/** @type {string} */ id, /** @type {string} */ checkpoint, /** @type {boolean} */ pinned) =>
    json("POST", `${run(id)}/checkpoints/${encodeURIComponent(checkpoint)}/${pinned ? "pin" : "unpin"}`, { body: {} }),
  documents: (/** @type {string} */ id, /** @type {number} */ segment, /** @type {number} */ from, /** @type {number} */ to) => {
    const query = new URLSearchParams({ segment: String(segment), from_step: String(from), to_step: String(to) });
    return json("GET", `${run(id)}/documents?${query}`);
  },
  samples: (/** @type {string} */ id, /** @type {Record<string, string>} */ query) =>
    json("GET", `${run(id)}/samples?${new URLSearchParams(query)}`),
  cancelCommand: (/** @type {string} */ id, /** @type {string} */ command) =>
    json("POST", `${run(id)}/commands/${encodeURIComponent(command)}/cancel`, { body: {} }),
  cancelCountdown: (/** @type {string} */ id) => json("POST", `${run(id)}/countdown/cancel`, { body: {} }),
  countdownNow: (/** @type {string} */ id) => json("POST", `${run(id)}/countdown/now`, { body: {} }),
  webhooks: async () => (await json("GET", "/api/webhooks")).webhooks,
  addWebhook: (/** @type {any} */ body) => json("POST", "/api/webhooks", { body }),
  changeWebhook: (/** @type {string} */ id, /** @type {any} */ body) => json("PUT", webhook(id), { body }),
  deleteWebhook: (/** @type {string} */ id) => json("DELETE", webhook(id)),
  testWebhook: (/** @type {string} */ id) => json("POST", `${webhook(id)}/test`, { body: {} }),
  deliveries: async (/** @type {string} */ id) => (await json("GET", `${webhook(id)}/deliveries?limit=100`)).deliveries,
};
