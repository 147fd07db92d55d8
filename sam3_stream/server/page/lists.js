// Lists that are kept up to date in place, so that focus and what is being typed survive.

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Make a list's items those of `rows`: `create` makes an item for a key, `update` brings it up to date.
function reconcile(list, rows, key, create, update) {
  const known = new Map([...list.children].map((item) => [item.dataset.key, item]));
  rows.forEach((row, index) => {
    const name = String(key(row));
    let item = known.get(name);
    known.delete(name);
    if (!item) {
      item = create(row);
      item.dataset.key = name;
    }
    update(item, row);
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
  for (const item of known.values()) item.remove();
}

export function showObjects(list, objects, { selected, ages, onSelect, onRename, onDelete }) {
  const create = (object) => {
    const swatch = make("button", { className: "swatch", type: "button" });
    swatch.addEventListener("click", () => onSelect(object.id));
    const name = make("input", { className: "name", maxLength: 100 });
    name.addEventListener("focus", () => onSelect(object.id));
    name.addEventListener("change", () => onRename(object.id, name.value));
    name.addEventListener("keydown", (event) => event.key === "Enter" && name.blur());
    const detail = make("span", { className: "detail" });
    const remove = make("button", { className: "plain", type: "button", textContent: "Delete" });
    remove.addEventListener("click", () => onDelete(object.id));
    return make("li", {}, swatch, name, detail, remove);
  };
  const update = (item, object) => {
    const [swatch, name, detail, remove] = item.children;
    swatch.style.setProperty("background", object.color);
    swatch.setAttribute("aria-label", `Select ${object.label}`);
    name.setAttribute("aria-label", `Name of object ${object.id}`);
    remove.setAttribute("aria-label", `Delete ${object.label}`);
    if (document.activeElement !== name) name.value = object.label;
    const seconds = Math.round((Date.now() - ages.get(object.id)) / 1000);
    detail.textContent = object.present ? `${object.score.toFixed(2)} · ${seconds} s` : "not in view";
    item.classList.toggle("absent", !object.present);
    item.setAttribute("aria-current", String(object.id === selected));
  };
  reconcile(list, objects, (object) => object.id, create, update);
}

export function showPhrases(list, prompts, { onRemove }) {
  const create = (prompt) => {
    const remove = make("button", { className: "plain", type: "button", textContent: "Remove" });
    remove.addEventListener("click", () => onRemove(prompt.id));
    return make("li", { className: "plain-row" }, make("span", { className: "words" }), remove);
  };
  const update = (item, prompt) => {
    item.children[0].textContent = prompt.label;
    item.children[1].setAttribute("aria-label", `Remove the phrase ${prompt.label}`);
  };
  reconcile(list, prompts, (prompt) => prompt.id, create, update);
}

export function showStreams(list, streams, { current, onWatch, onRestart, onRemove }) {
  const create = (stream) => {
    const button = (text, act) => {
      const made = make("button", { className: "plain", type: "button", textContent: text });
      made.addEventListener("click", () => act(stream.name));
      return made;
    };
    const watch = button("", onWatch);
    watch.classList.add("words");
    return make("li", { className: "plain-row" }, watch, button("Restart", onRestart), button("Remove", onRemove));
  };
  const update = (item, stream) => {
    const [watch, restart, remove] = item.children;
    watch.textContent = stream.state === "live" ? `${stream.name} · ${stream.fps_in.toFixed(0)} fps` : `${stream.name} · ${stream.state}`;
    watch.title = stream.reason || stream.source;
    restart.setAttribute("aria-label", `Restart the stream ${stream.name}`);
    remove.setAttribute("aria-label", `Remove the stream ${stream.name}`);
    item.setAttribute("aria-current", String(stream.name === current));
  };
  reconcile(list, streams, (stream) => stream.name, create, update);
}
