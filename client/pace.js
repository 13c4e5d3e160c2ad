/**
 * What is asked for often and done at most every so often. The last asking is never lost: it is answered when its time has come.
 * @param {number} ms between one doing and the next
 * @param {() => void} act
 */
export function paced(ms, act) {
  let last = -Infinity,
    timer = /** @type {ReturnType<typeof setTimeout> | null} */ (null);
  const stop = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  };
  const now = () => {
    stop();
    last = performance.now();
    act();
  };
  return {
    ask() {
      const wait = last + ms - performance.now();
      if (wait <= 0) now();
      else timer ??= setTimeout(now, wait);
    },
    now,
    stop,
  };
}
