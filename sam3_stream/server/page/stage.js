// The video as a thing to point at: by mouse, finger or keyboard. Says where in the source frame, and draws markers.

import { clamp, placement, toSource } from "./geometry.js";

const DRAG_PIXELS = 6;
const STEP = 12;
const FINE_STEP = 2;

export class Stage {
  constructor(element, canvas, { size, onPoint, onBox }) {
    Object.assign(this, { element, canvas, size, onPoint, onBox });
    this.marks = new Set(); // what has been said and not been acknowledged yet
    this.cross = null;
    this.anchor = null;
    this.drag = null;
    element.addEventListener("pointerdown", (event) => this.down(event));
    element.addEventListener("pointermove", (event) => this.move(event));
    element.addEventListener("pointerup", (event) => this.up(event));
    element.addEventListener("pointercancel", () => this.cancel());
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("blur", () => this.cancel());
    new ResizeObserver(() => this.draw()).observe(element);
  }

  at(event) {
    const [width, height] = this.size();
    return toSource(this.element, width, height, event.clientX, event.clientY);
  }

  down(event) {
    if (event.button !== 0) return;
    const point = this.at(event);
    if (!point) return;
    this.element.setPointerCapture(event.pointerId);
    this.drag = { from: point, to: point, x: event.clientX, y: event.clientY, moved: false };
    this.cross = this.anchor = null;
  }

  move(event) {
    if (!this.drag) return;
    const distance = Math.hypot(event.clientX - this.drag.x, event.clientY - this.drag.y);
    this.drag.moved ||= distance > DRAG_PIXELS;
    this.drag.to = this.at(event) ?? this.drag.to;
    this.draw();
  }

  up(event) {
    const drag = this.drag;
    this.drag = null;
    this.draw();
    if (!drag) return;
    if (drag.moved) this.box(drag.from, drag.to);
    else this.onPoint(drag.from, { not: event.shiftKey, more: event.altKey });
  }

  box(from, to) {
    const [x0, x1] = [Math.min(from.x, to.x), Math.max(from.x, to.x)];
    const [y0, y1] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
    if (x1 - x0 >= 2 && y1 - y0 >= 2) this.onBox({ x0, y0, x1, y1 });
  }

  key(event) {
    const [width, height] = this.size();
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) {
      const step = event.shiftKey ? FINE_STEP : STEP;
      const [dx, dy] = moves[event.key];
      const from = this.cross ?? { x: width / 2, y: height / 2 };
      this.cross = { x: clamp(from.x + dx * step, 0, width - 1), y: clamp(from.y + dy * step, 0, height - 1) };
    } else if (event.key === "Enter" && this.cross) {
      if (this.anchor) this.box(this.anchor, this.cross);
      else this.onPoint(this.cross, { not: event.shiftKey, more: event.altKey });
      this.anchor = null;
    } else if (event.key.toLowerCase() === "b" && this.cross) {
      this.anchor = this.cross;
    } else if (event.key === "Escape") {
      this.cancel();
    } else {
      return;
    }
    event.preventDefault();
    this.draw();
  }

  cancel() {
    this.drag = this.cross = this.anchor = null;
    this.draw();
  }

  mark(mark) {
    this.marks.add(mark);
    this.draw();
    return () => {
      this.marks.delete(mark);
      this.draw();
    };
  }

  draw() {
    const { canvas, element } = this;
    const ratio = window.devicePixelRatio || 1;
    const [cssWidth, cssHeight] = [element.clientWidth, element.clientHeight];
    canvas.width = Math.round(cssWidth * ratio);
    canvas.height = Math.round(cssHeight * ratio);
    const [width, height] = this.size();
    const { scale, left, top } = placement(element, width, height);
    const box = element.getBoundingClientRect();
    const context = canvas.getContext("2d");
    context.setTransform(ratio * scale, 0, 0, ratio * scale, (left - box.left) * ratio, (top - box.top) * ratio);
    const pen = (color, line) => Object.assign(context, { strokeStyle: color, lineWidth: line / scale });
    const outlined = (path) => {
      for (const [color, line] of [["#000a", 5], ["#fff", 2]]) {
        pen(color, line);
        context.beginPath();
        path();
        context.stroke();
      }
    };
    for (const mark of this.marks) outlined(() => this.path(context, mark, scale));
    if (this.drag?.moved) outlined(() => this.path(context, { from: this.drag.from, to: this.drag.to }, scale));
    if (this.anchor && this.cross) outlined(() => this.path(context, { from: this.anchor, to: this.cross }, scale));
    if (this.cross) {
      const arm = 14 / scale;
      outlined(() => {
        context.moveTo(this.cross.x - arm, this.cross.y);
        context.lineTo(this.cross.x + arm, this.cross.y);
        context.moveTo(this.cross.x, this.cross.y - arm);
        context.lineTo(this.cross.x, this.cross.y + arm);
      });
    }
  }

  path(context, mark, scale) {
    if (mark.from) {
      context.rect(mark.from.x, mark.from.y, mark.to.x - mark.from.x, mark.to.y - mark.from.y);
      return;
    }
    const radius = 9 / scale;
    context.arc(mark.x, mark.y, radius, 0, 2 * Math.PI);
    context.moveTo(mark.x - radius / 2, mark.y);
    context.lineTo(mark.x + radius / 2, mark.y);
    if (!mark.negative) {
      context.moveTo(mark.x, mark.y - radius / 2);
      context.lineTo(mark.x, mark.y + radius / 2);
    }
  }
}
