// Requests to the server. The token comes from the page's address and is sent as a header: a cookie would also go to other
// ports of this host.

const token = new URLSearchParams(location.search).get("token") ?? "";

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = { authorization: `Bearer ${token}`, ...options.headers };
  const signal = AbortSignal.timeout(10_000);
  const response = await fetch(path, { ...options, headers, signal, cache: "no-store", credentials: "omit" });
  if (!response.ok) {
    throw new RequestError(response.status, (await response.text()).trim() || response.statusText);
  }
  return response;
}

export const get = async (path) => (await request(path)).json();

export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
}
