// Asking the endpoint: JSON, with the token if there is one. What is wrong is thrown as ApiError.

const TOKEN = "forebay-token";

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(TOKEN) || "";

export function setToken(written) {
  sessionStorage.setItem(TOKEN, written);
}

export function headers(known = token()) {
  return known ? { Authorization: `Bearer ${known}` } : {};
}

const PATIENCE_MS = 10_000;

/** `query`: what is undefined or null is left out. */
export async function ask(name, query = {}) {
  const told = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null));
  const url = `/api/v1/${name}${told.size ? `?${told}` : ""}`;
  let answer;
  try {
    answer = await fetch(url, { headers: headers(), signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) return await answer.json();
  } catch {
    throw new ApiError("Forebay does not answer", 0);
  }
  let why = answer.statusText;
  try {
    why = (await answer.json()).error || why;
  } catch { /* it is not JSON */ }
  throw new ApiError(why, answer.status);
}
