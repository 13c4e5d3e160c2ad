// Stands in for node:test in a browser: runs each test, keeps what failed.
export const results = [];

export function test(name, run) {
  results.push(attempt(name, run));
}

async function attempt(name, run) {
  try {
    await run();
    return null;
  } catch (error) {
    return `${name}: ${error.stack ?? error}`;
  }
}
