// Shares this browser's camera with a stream, over WHIP.

import { gathered, negotiate, Problem } from "./api.js";

export class SharedCamera {
  async start(stream, onEnd) {
    if (!navigator.mediaDevices) throw new Problem("Cameras can be shared only over https or on this machine.");
    try {
      this.media = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 1280 } }, audio: false });
    } catch (error) {
      throw new Problem(`The camera cannot be had: ${error.message}.`);
    }
    const peer = (this.peer = new RTCPeerConnection());
    peer.addTransceiver(this.media.getVideoTracks()[0], { direction: "sendonly", streams: [this.media] });
    peer.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(peer.connectionState)) this.stop().then(onEnd);
    };
    try {
      await peer.setLocalDescription(await peer.createOffer());
      await gathered(peer);
      const { answer, location } = await negotiate(`/whip/${encodeURIComponent(stream)}`, peer.localDescription.sdp);
      this.location = location;
      await peer.setRemoteDescription({ type: "answer", sdp: answer });
    } catch (problem) {
      await this.stop();
      throw problem;
    }
  }

  async stop() {
    const { peer, media, location } = this;
    this.peer = this.media = this.location = null;
    media?.getTracks().forEach((track) => track.stop());
    if (location) await fetch(location, { method: "DELETE", keepalive: true }).catch(() => {});
    peer?.close();
  }
}
