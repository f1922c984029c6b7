// Numbers as people read them: three digits that count, and a unit that stays on their line. null and NaN are "–".

export const NONE = "–";

const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BLANK = "\u00a0";

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** 41300 → "41.3 k"; whole numbers below a thousand stay whole. */
export function count(value) {
  return known(value) ? scaled(value, "") : NONE;
}

/** 1234567 → "1.23 MB". */
export function bytes(value) {
  return known(value) ? scaled(Math.round(value), "B") : NONE;
}

function scaled(value, unit) {
  for (const [step, name] of STEPS) {
    if (Math.abs(value) >= step * 0.9995) return `${digits(value / step)}${BLANK}${name}${unit}`;
  }
  return (Number.isInteger(value) ? String(value) : digits(value)) + (unit && BLANK + unit);
}

/** Seconds → "3.1 ms". */
export function time(value) {
  if (!known(value)) return NONE;
  if (value === 0) return `0${BLANK}ms`;
  if (value < 1e-3) return `${digits(value * 1e6)}${BLANK}µs`;
  if (value < 1) return `${digits(value * 1e3)}${BLANK}ms`;
  return value < 120 ? `${digits(value)}${BLANK}s` : `${digits(value / 60)}${BLANK}min`;
}

/** 0.254 → "25.4 %". */
export function percent(value) {
  return known(value) ? `${digits(value * 100)}${BLANK}%` : NONE;
}

/** As on an axis: "5.00 MB" → "5 MB", "2.50 k" → "2.5 k". */
export function short(text) {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** Seconds since 1970 → the time of day, with the date if it is not today's. */
export function clock(seconds) {
  if (!seconds) return NONE;
  const when = new Date(seconds * 1000);
  const day = when.toDateString() === new Date().toDateString() ? "" : `${when.toISOString().slice(0, 10)} `;
  return day + when.toTimeString().slice(0, 8);
}

/** 1 → "1 client", 2 → "2 clients". */
export function many(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}
