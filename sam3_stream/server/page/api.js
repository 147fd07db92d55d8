// The server's HTTP API. Every error is a problem document, whose `detail` says what to do.

export class Problem extends Error {}

export async function api(path, { method = "GET", body } = {}) {
  let response;
  try {
    response = await fetch("/api/v1" + path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem("The server does not answer. Is it running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response.status === 204 ? null : response.json();
}

// A session description goes out, the answer comes back with the address at which the session is ended.
export async function negotiate(path, offer) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "content-type": "application/sdp" }, body: offer });
  } catch {
    throw new Problem("The server does not answer. Is it running?");
  }
  if (!response.ok) throw await problemOf(response);
  return { answer: await response.text(), location: response.headers.get("location") };
}

async function problemOf(response) {
  try {
    return new Problem((await response.json()).detail);
  } catch {
    return new Problem(`The server answered with ${response.status}.`);
  }
}

// Resolves when a peer connection knows all its addresses, or after a second: some never say that they do.
export function gathered(peer) {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => peer.iceGatheringState === "complete" && resolve();
    peer.addEventListener("icegatheringstatechange", done);
    setTimeout(resolve, 1000);
  });
}
