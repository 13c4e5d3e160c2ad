/**
 * Numbers, times and durations as a person reads them. Pure: words come in, text goes out.
 *
 * Non-finite numbers have names here ("NaN", "Inf", "-Inf" with a true minus); a missing value is an en dash, never zero.
 *
 * @typedef {{ day: string, hour: string, minute: string, second: string, millisecond: string, ago: string, weekdays: string[], date: string }} TimeWords
 */

export const MISSING = "\u2013";
const MINUS = "\u2212";

/** English words, the default of every function that needs some. @type {TimeWords} */
export const TIME_WORDS = {
  day: "d",
  hour: "h",
  minute: "min",
  second: "s",
  millisecond: "ms",
  ago: "{} ago",
  weekdays: ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"],
  date: "{y}-{m}-{d}",
};

/**
 * A `number*` of the API as a number; NaN only for the string "NaN". A missing value stays null.
 * @param {number | string | null | undefined} value
 * @returns {number | null}
 */
export function toNumber(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  return value === "NaN" ? NaN : value === "Infinity" ? Infinity : value === "-Infinity" ? -Infinity : null;
}

/**
 * A value with about four significant digits and never a thousands separator.
 * @param {number | null | undefined} value
 * @returns {string}
 */
export function number(value) {
  if (value === null || value === undefined) return MISSING;
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : MINUS + "Inf";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return scientific(value);
  if (size >= 1000) return signed(value, String(Math.round(size)));
  const digits = size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return signed(value, trimZeros(size.toFixed(digits)));
}

/** @param {number} value */
function scientific(value) {
  const [digits, power] = Math.abs(value).toExponential(2).split("e");
  return signed(value, `${trimZeros(digits)}e${Number(power)}`);
}

/** @param {number} value @param {string} text */
const signed = (value, text) => (value < 0 ? MINUS + text : text);

/** @param {string} text */
const trimZeros = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A norm to clip at: "1.0", "0.5". @param {number} value */
export const norm = (value) =>
  Number.isInteger(value) && Math.abs(value) < 1000 ? signed(value, `${Math.abs(value)}.0`) : number(value);

/** A whole exponent in superscript. @param {number} exponent */
const raised = (exponent) =>
  (exponent < 0 ? "\u207b" : "") +
  String(Math.abs(exponent)).replace(/\d/g, (d) => "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[Number(d)]);

const BINARY = ["", "Ki", "Mi", "Gi", "Ti"];

/**
 * A loss scale: whole powers of two with their binary prefix ("64Ki"), anything else as a plain number.
 * @param {number | null | undefined} value
 */
export function powerOfTwo(value) {
  if (value === null || value === undefined || !Number.isFinite(value) || value <= 0) return number(value);
  if (value < 1 / 64 && Number.isInteger(Math.log2(value))) return `2${raised(Math.log2(value))}`;
  if (value < 1024) return number(value);
  let rest = value,
    prefix = 0;
  while (rest >= 1024 && rest % 1024 === 0 && prefix < BINARY.length - 1) {
    rest /= 1024;
    prefix += 1;
  }
  return rest < 1024 ? String(rest) + BINARY[prefix] : number(value);
}

/**
 * A tick of a value axis: 1k, 2.5M, 1e18, 2.4e-5. Never wider than the margin beside the plot, whatever a diverged run reaches.
 * @param {number} value
 */
export function axisNumber(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return scientific(value);
  if (size >= 1e6) return signed(value, trimZeros((size / 1e6).toPrecision(4)) + "M");
  if (size >= 1000) return signed(value, trimZeros((size / 1000).toPrecision(4)) + "k");
  if (size !== 0 && size < 1e-3) return scientific(value);
  return signed(value, String(Number(size.toPrecision(6))));
}

/**
 * Bytes in GiB, one decimal under 100.
 * @param {number | null | undefined} bytes
 */
export function gibibytes(bytes) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return number(bytes);
  const value = bytes / 2 ** 30;
  return value >= 100 ? String(Math.round(value)) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}

/**
 * A size on disk: "4.2 MB".
 * @param {number | null | undefined} bytes
 */
export function size(bytes) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return MISSING;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let rest = bytes,
    unit = 0;
  while (rest >= 1000 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

/**
 * "5 h 12 min", "3.1 s", "4 min", "4 ms".
 * @param {number | null | undefined} seconds
 * @param {TimeWords} [words]
 */
export function duration(seconds, words = TIME_WORDS) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return MISSING;
  if (seconds > 0 && seconds < 0.1) return `${number(Number((seconds * 1000).toPrecision(2)))} ${words.millisecond}`;
  if (seconds < 10) return `${trimZeros(seconds.toFixed(seconds < 1 ? 2 : 1))} ${words.second}`;
  if (seconds < 59.5) return `${Math.round(seconds)} ${words.second}`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} ${words.minute}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} ${words.hour} ${minutes % 60} ${words.minute}` : `${hours} ${words.hour}`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} ${words.day} ${hours % 24} ${words.hour}` : `${days} ${words.day}`;
}

/**
 * The largest unit of a span only, whole: "1 s", "11 min", "2 d". For narrow cells.
 * @param {number} seconds
 * @param {TimeWords} [words]
 */
export function shortSpan(seconds, words = TIME_WORDS) {
  const span = Math.max(0, seconds);
  if (span < 59.5) return `${Math.round(span)} ${words.second}`;
  if (span < 3570) return `${Math.round(span / 60)} ${words.minute}`;
  return span < 86000 ? `${Math.round(span / 3600)} ${words.hour}` : `${Math.round(span / 86400)} ${words.day}`;
}

/**
 * Digits of a countdown, rounded up so that it ends on 0:00: "0:42", "12:05".
 * @param {number} seconds
 */
export function countdown(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** @param {number} n */
const two = (n) => String(n).padStart(2, "0");

/**
 * A moment: the clock for today, the weekday within a week, the date before (or beyond).
 * @param {Date} at
 * @param {Date} now
 * @param {{ words?: TimeWords, seconds?: boolean }} [options]
 */
export function moment(at, now, { words = TIME_WORDS, seconds = false } = {}) {
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? ":" + two(at.getSeconds()) : ""}`;
  if (at.toDateString() === now.toDateString()) return clock;
  if (Math.abs(now.getTime() - at.getTime()) < 6.5 * 86400e3) return `${words.weekdays[at.getDay()]} ${clock}`;
  const date = words.date
    .replace("{y}", String(at.getFullYear()))
    .replace("{m}", two(at.getMonth() + 1))
    .replace("{d}", two(at.getDate()));
  return `${date} ${clock}`;
}

/**
 * Relative only up to a minute ("26 s ago"), then the moment itself.
 * @param {Date} at
 * @param {Date} now
 * @param {TimeWords} [words]
 */
export function since(at, now, words = TIME_WORDS) {
  const seconds = (now.getTime() - at.getTime()) / 1000;
  if (seconds < 60) return words.ago.replace("{}", `${Math.max(0, Math.round(seconds))} ${words.second}`);
  return moment(at, now, { words });
}

/**
 * The formatter a series deserves, by its name.
 * @param {string} series
 * @returns {(value: number | null | undefined) => string}
 */
export function valueFormat(series) {
  if (series === "amp/loss_scale") return powerOfTwo;
  return series.endsWith("_bytes") ? gibibytes : number;
}

/**
 * The unit shown beside a series; bytes are shown in GiB.
 * @param {string} series
 * @param {string} unit as the server says it
 */
export const shownUnit = (series, unit) => (series.endsWith("_bytes") ? "GiB" : unit);
