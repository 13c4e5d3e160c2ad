import { test } from "node:test";
import assert from "node:assert/strict";
import {
  axisNumber,
  countdown,
  duration,
  gibibytes,
  moment,
  number,
  powerOfTwo,
  shortSpan,
  since,
  size,
  toNumber,
  valueFormat,
} from "../../client/format.js";

test("non-finite numbers have names and a missing one is a dash, never zero", () => {
  assert.deepEqual([NaN, Infinity, -Infinity, null, undefined].map(number), ["NaN", "Inf", "−Inf", "–", "–"]);
  assert.deepEqual([NaN, Infinity, null].map(powerOfTwo), ["NaN", "Inf", "–"]);
  assert.deepEqual([NaN, null].map(gibibytes), ["NaN", "–"]);
});

test("the API's strings become numbers, anything else does not", () => {
  assert.ok(Number.isNaN(toNumber("NaN")));
  assert.deepEqual(["Infinity", "-Infinity", 0, null, undefined, "12", "constructor"].map(toNumber), [
    Infinity,
    -Infinity,
    0,
    null,
    null,
    null,
    null,
  ]);
});

test("numbers keep about four digits and no thousands separator", () => {
  assert.deepEqual([1.79412, 15.2, 156.23, 1024.4, 9375, 0.0834, 0, -2.5].map(number), [
    "1.794",
    "15.2",
    "156.2",
    "1024",
    "9375",
    "0.0834",
    "0",
    "−2.5",
  ]);
  assert.deepEqual([2.45e-5, 5e-5, 3.2e9].map(number), ["2.45e-5", "5e-5", "3.2e9"]);
});

test("a loss scale is a power of two", () => {
  assert.deepEqual([65536, 32, 1024, 2 ** 20, 2 ** 24, 512, 1500].map(powerOfTwo), [
    "64Ki",
    "32",
    "1Ki",
    "1Mi",
    "16Mi",
    "512",
    "1500",
  ]);
  assert.deepEqual([2 ** -19, 0.5, 0, 0.3].map(powerOfTwo), ["2⁻¹⁹", "0.5", "0", "0.3"]); // a dead run's scale slides below 1
  assert.equal(valueFormat("amp/loss_scale")(131072), "128Ki");
});

test("axis numbers are short", () => {
  assert.deepEqual([1000, 2500, 1e6, 0.5, 2.4e-5, -1000, 0].map(axisNumber), ["1k", "2.5k", "1M", "0.5", "2.4e-5", "−1k", "0"]);
});

test("durations are in the two units that matter", () => {
  assert.deepEqual(
    [0.25, 3.14, 42, 59.7, 240, 18720, 3600, 93600, null, NaN, -1].map((s) => duration(s)),
    ["0.25 s", "3.1 s", "42 s", "1 min", "4 min", "5 h 12 min", "1 h", "1 d 2 h", "–", "–", "–"],
  );
  assert.deepEqual(
    [0, 59, 660, 7200, 172800, -3].map((s) => shortSpan(s)),
    ["0 s", "59 s", "11 min", "2 h", "2 d", "0 s"],
  );
});

test("a countdown rounds up, so that it ends on zero", () => {
  assert.deepEqual([42, 41.2, 0.1, 0, -5, 725].map(countdown), ["0:42", "0:42", "0:01", "0:00", "0:00", "12:05"]);
});

test("a moment is a clock today, a weekday this week, a date before", () => {
  const now = new Date(2026, 3, 2, 19, 4, 10);
  assert.equal(moment(new Date(2026, 3, 2, 8, 5), now), "08:05");
  assert.equal(moment(new Date(2026, 3, 2, 8, 5, 9), now, { seconds: true }), "08:05:09");
  assert.equal(moment(new Date(2026, 2, 31, 12, 58), now), "Tue 12:58");
  assert.equal(moment(new Date(2026, 0, 5, 1, 2), now), "2026-01-05 01:02");
  assert.equal(since(new Date(now.getTime() - 26e3), now), "26 s ago");
  assert.equal(since(new Date(now.getTime() - 3600e3), now), "18:04");
});

test("sizes and memory", () => {
  assert.deepEqual([0, 999, 1500, 4.2e9, null].map(size), ["0 B", "999 B", "1.5 KB", "4.2 GB", "–"]);
  assert.equal(gibibytes(21.5 * 2 ** 30), "21.5");
});

test("a tick of a diverged run is scientific and fits beside the plot", () => {
  assert.deepEqual([1e18, 2.5e12, 1e10, 1e9, -4e15, 1e300].map(axisNumber), ["1e18", "2.5e12", "1e10", "1e9", "−4e15", "1e300"]);
  assert.deepEqual([999.9e6, 999_999_999, 2.5e6, 999_999].map(axisNumber), ["999.9M", "1000M", "2.5M", "1000k"]);
});

test("what lasts some milliseconds is not 0 s", () => {
  assert.deepEqual(
    [0.0042, 0.0123, 0.0999, 0.00042, 0.1, 0].map((s) => duration(s)),
    ["4.2 ms", "12 ms", "100 ms", "0.42 ms", "0.1 s", "0 s"],
  );
});
