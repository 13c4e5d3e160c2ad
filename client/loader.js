/**
 * Reading what a view shows: one request at a time, however many hints come meanwhile, and the answer "no" as a value that the
 * view draws.
 */
import { ApiError } from "./api.js";
import { clause, t } from "./i18n/index.js";

/** @typedef {{ detail: string, fix: string, status?: number, now?: any }} Problem `now`: the run as it is, where the page was stale */

/** No answer, no right, a fault: said in the language of the page. Another 403 says why itself, as a cross-site request. @param {ApiError} error */
const isOurs = ({ status, detail }) => [0, 500].includes(status) || (status === 403 && detail.startsWith("this is not for the role"));

/** What the server or the network said no with; anything else is a fault of ours and goes on. @param {unknown} error @returns {Problem} */
export function problemOf(error) {
  if (error instanceof ApiError && isOurs(error))
    return { detail: t(`problem.${error.status}`), fix: t(`problem.${error.status}.fix`), status: error.status };
  if (error instanceof ApiError)
    return { detail: clause(error.detail), fix: clause(error.fix), status: error.status, now: error.problem.run ?? error.problem };
  throw error;
}

/**
 * @param {() => Promise<void>} read fetches and keeps what the view shows
 * @param {(problem: Problem | null) => void} settled called after each read, with what went wrong; never after `close`
 * @param {number} [pause] ms between two reads, so that values repaint at most so often
 */
export function createLoader(read, settled, pause = 400) {
  let busy = false,
    again = false,
    closed = false;
  const load = async () => {
    again = busy;
    if (busy) return;
    busy = true;
    /** @type {Problem | null} */ let problem = null;
    try {
      await read();
    } catch (error) {
      problem = problemOf(error);
      if (error instanceof ApiError && error.status === 401) problem = null; // the sign-in page comes by itself
    } finally {
      busy = false;
    }
    if (closed) return;
    settled(problem);
    if (again) setTimeout(load, pause);
  };
  return {
    load,
    /** Does `what`, then reads anew; a refusal is drawn after that. @param {() => Promise<any>} what */
    attempt: async (what) => {
      /** @type {Problem | null} */ let refused = null;
      try {
        await what();
      } catch (error) {
        refused = problemOf(error);
      }
      await load();
      if (refused && !closed) settled(refused);
    },
    close: () => {
      closed = true;
    },
    /** Whether the view is gone. */
    get closed() {
      return closed;
    },
  };
}
