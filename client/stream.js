/**
 * The live stream: server-sent hints that something changed. It only says which runs have which revision; what is shown is
 * fetched by whoever shows it. A lost connection is taken up again with a growing wait; the state is told every time.
 */
import { live } from "./reducers.js";

const WAITS = [500, 1000, 2000, 5000, 10000];

/**
 * @param {{ hint: (revisions: Record<string, number>, webhooks: boolean, all: boolean, rules: boolean) => void,
 *           state: (state: import("./reducers.js").LiveState) => void, signedIn: () => Promise<boolean> }} to
 * @returns {() => void} closes the stream
 */
export function openStream(to) {
  /** @type {import("./reducers.js").LiveState} */
  let state = "connecting";
  let closed = false,
    failures = 0;
  /** @type {EventSource | null} */
  let source = null;
  /** @type {number | undefined} */
  let timer;
  const move = (/** @type {"hello" | "error"} */ input) => {
    state = live(state, input);
    to.state(state);
  };
  const read = (/** @type {string} */ data, /** @type {boolean} */ all) => {
    const hint = JSON.parse(data);
    to.hint(hint.revisions ?? {}, Boolean(hint.webhooks), all, Boolean(hint.rules));
  };
  const connect = () => {
    if (closed) return;
    source = new EventSource("/api/live");
    source.addEventListener("hello", (event) => {
      failures = 0;
      move("hello");
      read(/** @type {MessageEvent} */ (event).data, true);
    });
    source.addEventListener("changed", (event) => read(/** @type {MessageEvent} */ (event).data, false));
    source.addEventListener("error", async () => {
      source?.close();
      if (closed) return;
      move("error");
      const wait = WAITS[Math.min(failures, WAITS.length - 1)];
      failures += 1;
      // An EventSource does not tell a 401 from a server that is away; asking who we are does.
      if (await to.signedIn()) timer = window.setTimeout(connect, wait);
    });
  };
  connect();
  return () => {
    closed = true;
    window.clearTimeout(timer);
    source?.close();
  };
}
