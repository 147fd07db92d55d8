// The page: what is on the screen, and what happens when somebody does something.

import { api } from "./api.js";
import { SharedCamera } from "./camera.js";
import { Chart } from "./chart.js";
import { isInside } from "./geometry.js";
import { showObjects, showPhrases, showStreams } from "./lists.js";
import { Stage } from "./stage.js";
import { listStreams, streamPath, Viewer } from "./viewer.js";

const POLL_MS = 1000;
const LISTS_MS = 250;
const NOTICE_MS = 8000;
const CAMERA_STREAM = "shared-camera";

const at = (id) => document.getElementById(id);
const state = { streams: [], current: null, viewer: null, selected: null, camera: null, ages: new Map(), prompts: [] };
const chart = new Chart(at("chart"));
const stage = new Stage(at("stage"), at("drawing"), { size: sourceSize, onPoint: click, onBox: box });

function sourceSize() {
  const results = state.viewer?.newest;
  const stream = currentStream();
  if (results) return [results.width, results.height];
  return [stream?.width ?? 16, stream?.height ?? 9];
}

function currentStream() {
  return state.streams.find((stream) => stream.name === state.current);
}

function notice(words, good = false) {
  const element = Object.assign(document.createElement("p"), { className: good ? "notice good" : "notice", textContent: words });
  at("notices").append(element);
  while (at("notices").children.length > 4) at("notices").firstChild.remove();
  setTimeout(() => element.remove(), NOTICE_MS);
}

async function attempt(work) {
  try {
    return await work();
  } catch (problem) {
    notice(problem.message);
    return null;
  }
}

function connection(kind, words) {
  at("connection").dataset.state = kind;
  at("connection").textContent = words;
}

// Watching

function watch(name) {
  if (state.current === name && state.viewer) return;
  state.viewer?.close();
  Object.assign(state, { current: name, selected: null, ages: new Map(), prompts: [], viewer: null });
  chart.clear();
  at("video").srcObject = null;
  try {
    sessionStorage.setItem("stream", name);
  } catch {
    // a browser that keeps nothing begins with the first stream
  }
  if (name) state.viewer = new Viewer(at("video"), name, { onResults: noteObjects, onState: connection });
  else connection("waiting", "There is no stream");
  refresh();
}

function noteObjects(results) {
  const now = Date.now();
  for (const object of results.objects) if (!state.ages.has(object.id)) state.ages.set(object.id, now);
  for (const id of state.ages.keys()) if (!results.objects.some((object) => object.id === id)) state.ages.delete(id);
  if (state.selected && !state.ages.has(state.selected)) state.selected = null;
  at("stage").style.setProperty("aspect-ratio", `${results.width} / ${results.height}`);
}

// Pointing

function objectAt(point) {
  const objects = state.viewer?.onScreen?.objects ?? [];
  return objects.findLast((object) => object.present && isInside(object.contours, point)) ?? null;
}

function click(point, { not, more }) {
  const mode = document.querySelector("input[name=mode]:checked").value;
  const under = objectAt(point);
  const negative = not || mode === "not";
  const corrects = negative || more || mode === "more";
  const target = corrects ? (negative ? under?.id ?? state.selected : state.selected ?? under?.id) : null;
  if (corrects && !target) {
    notice("Select an object first: click on it, or on its colour in the list.");
    return;
  }
  if (!corrects && under) {
    state.selected = under.id;
    showLists();
    return;
  }
  say({ type: "click", x: point.x, y: point.y, positive: !negative, object: target ?? undefined }, { ...point, negative });
}

function box(corners) {
  const mark = { from: { x: corners.x0, y: corners.y0 }, to: { x: corners.x1, y: corners.y1 } };
  const mode = document.querySelector("input[name=mode]:checked").value;
  const target = mode === "more" ? state.selected ?? undefined : undefined;
  say({ type: "box", ...corners, object: target }, mark);
}

async function say(prompt, mark) {
  const frame = state.viewer?.onScreen?.frame;
  const unmark = mark ? stage.mark(mark) : () => {};
  const effect = await attempt(() =>
    api(streamPath(state.current) + "/prompts", { method: "POST", body: { ...prompt, frame } }),
  );
  unmark();
  if (effect?.object) state.selected = effect.object;
  await refresh();
  return effect;
}

// Lists and read-outs

function showLists() {
  const objects = state.viewer?.newest?.objects ?? [];
  at("object-count").textContent = objects.length;
  at("no-objects").hidden = objects.length > 0;
  showObjects(at("objects"), objects, {
    selected: state.selected,
    ages: state.ages,
    onSelect: (id) => {
      state.selected = id;
      showLists();
    },
    onRename: (id, label) => attempt(() => api(`${streamPath(state.current)}/objects/${id}`, { method: "PATCH", body: { label } })),
    onDelete: (id) => attempt(() => api(`${streamPath(state.current)}/objects/${id}`, { method: "DELETE" })),
  });
  const phrases = state.prompts.filter((prompt) => prompt.object === null);
  at("no-prompts").hidden = phrases.length > 0;
  showPhrases(at("prompts"), phrases, {
    onRemove: async (id) => {
      await attempt(() => api(`${streamPath(state.current)}/prompts/${encodeURIComponent(id)}`, { method: "DELETE" }));
      await refresh();
    },
  });
}

function showReadouts(stream) {
  const newest = state.viewer?.newest;
  const text = (id, words) => (at(id).textContent = words);
  text("fps-in", stream ? `${stream.fps_in.toFixed(1)} fps` : "–");
  text("fps-out", stream ? `${stream.fps_out.toFixed(1)} fps` : "–");
  text("age", stream?.age_ms == null ? "–" : `${stream.age_ms.toFixed(0)} ms`);
  text("resolution", stream?.resolution ? stream.resolution.join("×") : "–");
  text("mask-state", newest ? (newest.mask_age ? `${newest.state}, ${newest.mask_age} old` : newest.state) : "–");
  text("dropped", stream ? Object.values(stream.dropped).reduce((sum, count) => sum + count, 0) : "–");
  if (stream) chart.add(stream.fps_out, stream.age_ms);
  if (document.activeElement !== at("target")) at("target").value = stream?.target_fps ?? "";
  const message = at("stage-message");
  const words = !stream ? "There is no stream. Add one, or share your camera." : stream.state === "live" ? "" : stream.reason || `The stream is ${stream.state}.`;
  message.textContent = words;
  message.hidden = !words;
}

function showStreamChoice() {
  const select = at("stream-select");
  const names = state.streams.map((stream) => stream.name);
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  select.value = state.current ?? "";
  showStreams(at("streams"), state.streams, {
    current: state.current,
    onWatch: watch,
    onRestart: (name) => attempt(() => api(streamPath(name) + "/restart", { method: "POST" })),
    onRemove: async (name) => {
      await attempt(() => api(streamPath(name), { method: "DELETE" }));
      await refresh();
    },
  });
}

async function refresh() {
  try {
    state.streams = await listStreams();
    if (!state.streams.some((stream) => stream.name === state.current)) {
      let wanted = null;
      try {
        wanted = sessionStorage.getItem("stream");
      } catch {
        // see above
      }
      const first = state.streams.find((stream) => stream.name === wanted) ?? state.streams[0];
      if ((first?.name ?? null) !== state.current || !state.viewer) watch(first?.name ?? null);
    }
    if (state.current) state.prompts = await api(streamPath(state.current) + "/prompts");
  } catch (problem) {
    connection("broken", problem.message);
    return;
  }
  showStreamChoice();
  showLists();
}

async function poll() {
  await refresh();
  showReadouts(currentStream());
  setTimeout(poll, POLL_MS);
}

// Forms

at("stream-select").addEventListener("change", (event) => watch(event.target.value));

at("phrase-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("phrase").value.trim();
  if (!text) return;
  if (await say({ type: "text", text })) at("phrase").value = "";
});

at("target-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("target").blur();
  const fps = at("target").value ? Number(at("target").value) : null;
  await attempt(() => api(streamPath(state.current) + "/settings", { method: "PATCH", body: { target_fps: fps } }));
});

at("add-type").addEventListener("change", () => {
  const kind = at("add-type").value;
  at("add-where-label").hidden = kind === "whip";
  at("add-where-label").firstChild.textContent = kind === "file" ? "Path " : "Address ";
});

at("add-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const kind = at("add-type").value;
  const where = at("add-where").value.trim();
  const source = { url: { type: "url", url: where }, file: { type: "file", path: where }, whip: { type: "whip" } }[kind];
  const added = await attempt(() => api("/streams", { method: "POST", body: { name: at("add-name").value, source } }));
  if (!added) return;
  event.target.reset();
  at("add-where-label").hidden = false;
  watch(added.name);
});

at("share").addEventListener("click", async () => {
  const button = at("share");
  if (state.camera) {
    await state.camera.stop();
    ended();
    return;
  }
  button.disabled = true;
  await attempt(async () => {
    const here = currentStream();
    const free = here?.kind === "whip" ? here : state.streams.find((stream) => stream.kind === "whip" && stream.state !== "live");
    const name = free?.name ?? (await api("/streams", { method: "POST", body: { name: CAMERA_STREAM, source: { type: "whip" } } })).name;
    const camera = new SharedCamera();
    await camera.start(name, ended);
    state.camera = camera;
    button.textContent = "Stop sharing my camera";
    watch(name);
  });
  button.disabled = false;
});

function ended() {
  state.camera = null;
  at("share").textContent = "Share my camera";
}

window.addEventListener("pagehide", () => {
  state.viewer?.close();
  state.camera?.stop();
});
setInterval(showLists, LISTS_MS);
poll();
