// The last minute of results per second and latency.

const SECONDS = 60;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.samples = [];
  }

  add(fps, ageMs) {
    this.samples.push({ fps, ageMs });
    if (this.samples.length > SECONDS) this.samples.shift();
    this.draw();
  }

  clear() {
    this.samples = [];
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const context = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.strokeStyle = getComputedStyle(canvas.closest("section")).borderTopColor;
    context.lineWidth = 1;
    for (const y of [1, canvas.height / 2, canvas.height - 1]) this.line(context, [[0, y], [canvas.width, y]]);
    const probe = (name) => {
      const key = document.querySelector(`.key.${name}`);
      return key ? getComputedStyle(key).borderTopColor : style.color;
    };
    const most = Math.max(10, ...this.samples.map((each) => each.fps)) * 1.15;
    const oldest = Math.max(100, ...this.samples.map((each) => each.ageMs ?? 0)) * 1.15;
    const place = (index) => canvas.width - ((this.samples.length - 1 - index) / (SECONDS - 1)) * canvas.width;
    const height = (share) => canvas.height - share * (canvas.height - 4) - 2;
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = probe("age");
    this.line(context, this.samples.map((each, index) => [place(index), height((each.ageMs ?? 0) / oldest)]));
    context.strokeStyle = probe("fps");
    this.line(context, this.samples.map((each, index) => [place(index), height(each.fps / most)]));
  }

  line(context, points) {
    context.beginPath();
    points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
  }
}
