// Watches one stream: video over WHEP, results over its data channel, or as server-sent events where that fails.

import { api, gathered, negotiate } from "./api.js";

const KEPT_RESULTS = 150;
const CHANNEL_WAIT_MS = 4000;
const RETRIES_MS = [500, 1000, 2000, 4000];

export class Viewer {
  constructor(video, stream, { onResults, onState }) {
    this.video = video;
    this.stream = stream;
    this.onResults = onResults;
    this.onState = onState;
    this.byTimestamp = new Map();
    this.newest = null;
    this.shown = null; // the results of the frame that is on the screen
    this.closed = false;
    this.attempts = 0;
    this.watchFrames();
    this.connect();
  }

  async connect() {
    if (this.closed) return;
    this.onState("waiting", "Connecting…");
    const peer = (this.peer = new RTCPeerConnection());
    peer.addTransceiver("video", { direction: "recvonly" });
    const channel = peer.createDataChannel("results", { ordered: false, maxRetransmits: 0 });
    channel.onmessage = (event) => this.take(JSON.parse(event.data));
    peer.ontrack = ({ track, receiver }) => {
      if ("jitterBufferTarget" in receiver) receiver.jitterBufferTarget = 0;
      this.video.srcObject = new MediaStream([track]);
      this.video.play().catch(() => {});
    };
    peer.onconnectionstatechange = () => this.heed(peer);
    try {
      await peer.setLocalDescription(await peer.createOffer());
      await gathered(peer);
      const { answer, location } = await negotiate(`/whep/${encodeURIComponent(this.stream)}`, peer.localDescription.sdp);
      this.location = location;
      await peer.setRemoteDescription({ type: "answer", sdp: answer });
    } catch (problem) {
      if (peer === this.peer) this.retry(problem.message);
      return;
    }
    setTimeout(() => peer === this.peer && channel.readyState !== "open" && this.listen(), CHANNEL_WAIT_MS);
  }

  heed(peer) {
    if (peer !== this.peer) return;
    if (peer.connectionState === "connected") {
      this.attempts = 0;
      this.onState("live", "Live");
    } else if (["failed", "disconnected", "closed"].includes(peer.connectionState)) {
      this.retry("The connection was lost.");
    }
  }

  retry(reason) {
    if (this.closed) return;
    this.end();
    const wait = RETRIES_MS[Math.min(this.attempts++, RETRIES_MS.length - 1)];
    this.onState("broken", `${reason} Trying again…`);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  listen() {
    if (this.events || this.closed) return;
    this.events = new EventSource(`/api/v1/streams/${encodeURIComponent(this.stream)}/results`);
    this.events.onmessage = (event) => this.take(JSON.parse(event.data));
  }

  take(results) {
    this.newest = results;
    if (results.rtp_timestamp != null) {
      this.byTimestamp.set(results.rtp_timestamp, results);
      if (this.byTimestamp.size > KEPT_RESULTS) this.byTimestamp.delete(this.byTimestamp.keys().next().value);
    }
    this.onResults(results);
  }

  // Which results belong to the frame on the screen: its RTP time stamp says so, where the browser tells it.
  watchFrames() {
    if (!("requestVideoFrameCallback" in this.video)) return;
    const presented = (_, frame) => {
      if (this.closed) return;
      this.shown = this.byTimestamp.get(frame.rtpTimestamp) ?? null;
      this.video.requestVideoFrameCallback(presented);
    };
    this.video.requestVideoFrameCallback(presented);
  }

  get onScreen() {
    return this.shown ?? this.newest;
  }

  end() {
    const { peer, location } = this;
    this.peer = this.location = null;
    // Not the other way round: once the server sees that the peer is gone, there is no session to delete.
    const deleted = location ? fetch(location, { method: "DELETE", keepalive: true }) : Promise.resolve();
    deleted.catch(() => {}).then(() => peer?.close());
    if (this.events) this.events.close();
    this.events = null;
    this.byTimestamp.clear();
    this.shown = null;
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.end();
  }
}

export const streamPath = (name) => `/streams/${encodeURIComponent(name)}`;
export const listStreams = () => api("/streams");
