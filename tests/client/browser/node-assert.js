// Stands in for node:assert/strict in a browser: only what the tests use.
const plain = (key, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
const show = (value) => JSON.stringify(value, plain);

function alike(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || Array.isArray(a) !== Array.isArray(b))
    return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && alike(a[key], b[key]));
}

function must(holds, text) {
  if (!holds) throw new Error(text);
}

export default {
  ok: (value, text) => must(value, text ?? `not true: ${show(value)}`),
  equal: (a, b, text) => must(Object.is(a, b), `${text ?? ""} ${show(a)} is not ${show(b)}`),
  deepEqual: (a, b, text) => must(alike(a, b), `${text ?? ""} ${show(a)} is not ${show(b)}`),
  throws(run, kind) {
    try {
      run();
    } catch (error) {
      must(error instanceof kind, `threw ${error}`);
      return;
    }
    throw new Error("did not throw");
  },
};
