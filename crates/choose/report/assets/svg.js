// ---- charts as SVG ----------------------------------------------------------------------------------------------

// The page's charts are drawn on a canvas. These two take the canvas's place, and note as SVG what is drawn on it.

const twoDigits = number => String(Math.round(100 * number) / 100);

const Path2DMethods = Path2D.prototype;

// A path that also works where a canvas draws, as other plots may at the same time.
class Outline extends Path2D {
  constructor(other) {
    super(other);
    this.d = other?.d ?? "";
  }
  note(method, args, text) {
    Path2DMethods[method].apply(this, args);
    this.d += text;
  }
  moveTo(x, y) { this.note("moveTo", arguments, `M${twoDigits(x)} ${twoDigits(y)}`); }
  // A path can begin with a line: to where it is, as on a canvas.
  lineTo(x, y) { this.note("lineTo", arguments, `${this.d === "" ? "M" : "L"}${twoDigits(x)} ${twoDigits(y)}`); }
  bezierCurveTo(...points) { this.note("bezierCurveTo", points, `C${points.map(twoDigits).join(" ")}`); }
  quadraticCurveTo(...points) { this.note("quadraticCurveTo", points, `Q${points.map(twoDigits).join(" ")}`); }
  rect(x, y, width, height) {
    this.note("rect", arguments, `M${twoDigits(x)} ${twoDigits(y)}h${twoDigits(width)}v${twoDigits(height)}h${twoDigits(-width)}Z`);
  }
  closePath() { this.note("closePath", [], "Z"); }
  // In two halves: one arc of SVG cannot be a full circle.
  arc(x, y, radius, from, to) {
    const at = angle => `${twoDigits(x + radius * Math.cos(angle))} ${twoDigits(y + radius * Math.sin(angle))}`;
    const arc = angle => `A${twoDigits(radius)} ${twoDigits(radius)} 0 0 1 ${at(angle)}`;
    const begins = this.d === "" || this.d.endsWith("Z") || to - from >= 2 * Math.PI;
    this.note("arc", arguments, `${begins ? "M" : "L"}${at(from)}${arc((from + to) / 2)}${arc(to)}`);
  }
}

class Drawing {
  constructor(canvas, name) {
    Object.assign(this, { canvas, name, parts: [], clips: 0, path: new Outline(), saved: [], matrix: [1, 0, 0, 1, 0, 0], clipped: null });
    Object.assign(this, {
      fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, lineCap: "butt", lineJoin: "miter", globalAlpha: 1, font: "10px sans-serif",
      textAlign: "start", textBaseline: "alphabetic", lineDashOffset: 0, dash: [],
    });
  }
  save() {
    const { fillStyle, strokeStyle, lineWidth, lineCap, lineJoin, globalAlpha, font, textAlign, textBaseline, lineDashOffset, dash, matrix, clipped } = this;
    this.saved.push({ fillStyle, strokeStyle, lineWidth, lineCap, lineJoin, globalAlpha, font, textAlign, textBaseline, lineDashOffset, dash, matrix, clipped });
  }
  restore() { Object.assign(this, this.saved.pop()); }
  translate(x, y) {
    const [a, b, c, d, e, f] = this.matrix;
    this.matrix = [a, b, c, d, a * x + c * y + e, b * x + d * y + f];
  }
  rotate(angle) {
    const [a, b, c, d, e, f] = this.matrix;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    this.matrix = [a * cos + c * sin, b * cos + d * sin, c * cos - a * sin, d * cos - b * sin, e, f];
  }
  setLineDash(dash) { this.dash = dash; }
  getLineDash() { return this.dash; }
  beginPath() { this.path = new Outline(); }
  moveTo(...at) { this.path.moveTo(...at); }
  lineTo(...at) { this.path.lineTo(...at); }
  rect(...box) { this.path.rect(...box); }
  arc(...circle) { this.path.arc(...circle); }
  closePath() { this.path.closePath(); }
  clearRect() {}
  // Adds an element where the canvas draws now. A clip is in the coordinates of the whole drawing, so it is outside the move.
  add(name, attributes, ...inside) {
    const moved = this.matrix.every((value, i) => value === [1, 0, 0, 1, 0, 0][i]) ? null
      : `matrix(${this.matrix.map(value => Math.round(1e4 * value) / 1e4).join(" ")})`;
    const opacity = this.globalAlpha < 1 ? this.globalAlpha : null;
    const clip = this.clipped && { "clip-path": `url(#${this.clipped})` };
    const drawn = tag(name, { ...!moved && clip, transform: moved, opacity, ...attributes }, ...inside);
    this.parts.push(moved && clip ? tag("g", clip, drawn) : drawn);
  }
  clip(path = this.path) {
    const [outer, id] = [this.clipped, `${this.name}-clip-${++this.clips}`];
    this.clipped = null;
    this.add("path", { d: path.d });
    // Of nested clips, the outer one clips the inner one.
    this.parts.push(tag("clipPath", { id, "clip-path": outer && `url(#${outer})` }, this.parts.pop()));
    this.clipped = id;
  }
  stroke(path = this.path) {
    if (path.d === "" || !(this.lineWidth > 0)) return;
    this.add("path", {
      d: path.d, fill: "none", stroke: this.strokeStyle, "stroke-width": twoDigits(this.lineWidth),
      "stroke-linecap": this.lineCap === "butt" ? null : this.lineCap, "stroke-linejoin": this.lineJoin === "miter" ? null : this.lineJoin,
      "stroke-dasharray": this.dash.length > 0 ? this.dash.map(twoDigits).join(" ") : null,
      "stroke-dashoffset": this.lineDashOffset || null,
    });
  }
  fill(path = this.path) {
    if (path.d !== "") this.add("path", { d: path.d, fill: this.fillStyle });
  }
  fillRect(...box) {
    const path = new Outline();
    path.rect(...box);
    this.fill(path);
  }
  fillText(text, x, y) {
    const size = parseFloat(/([\d.]+)px/.exec(this.font)?.[1] ?? "12");
    // Programs differ in what they know of baselines.
    const down = { top: 0.8, hanging: 0.8, middle: 0.35, bottom: -0.2 }[this.textBaseline] ?? 0;
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? null;
    this.add("text", {
      x: twoDigits(x), y: twoDigits(y + down * size), "font-size": twoDigits(size), "text-anchor": anchor, fill: this.fillStyle,
    }, escaped(text));
  }
  drawImage(image, x, y, width, height) {
    this.add("image", {
      x: twoDigits(x), y: twoDigits(y), width: twoDigits(width), height: twoDigits(height), preserveAspectRatio: "none",
      style: this.imageSmoothingEnabled === false ? "image-rendering: pixelated" : null, href: image.toDataURL(),
    });
  }
}

const escaped = text => String(text).replace(/[&<>"]/g, letter => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

function tag(name, attributes, ...inside) {
  const given = Object.entries(attributes).filter(([, value]) => value != null);
  return `<${name}${given.map(([name, value]) => ` ${name}="${escaped(value)}"`).join("")}>${inside.join("")}</${name}>`;
}

// The names of series with their lines, in as many rows as it takes, from `top` down; and the height of all.
function svgLegend(chart, width, top) {
  const ink = colour("--ink");
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = "12px 'Liberation Sans', Arial, sans-serif";
  const parts = [];
  let [x, y] = [10, top + 14];
  for (const series of chart.series.slice(1).filter(series => series.label && series.show && series.stroke(chart, 1))) {
    const needs = 34 + 6 + measure.measureText(series.label).width + 18;
    if (x > 10 && x + needs > width) [x, y] = [10, y + 18];
    const stroke = series.stroke(chart, 1);
    parts.push(tag("path", {
      d: `M${twoDigits(x)} ${y - 4}h34`, fill: "none", stroke, "stroke-width": series.width > 0 ? twoDigits(series.width) : 8,
      "stroke-dasharray": series.dash?.join(" "),
    }), tag("text", { x: twoDigits(x + 40), y, "font-size": 12, fill: ink }, escaped(series.label)));
    x += needs;
  }
  return { parts, height: parts.length > 0 ? y - top + 8 : 0 };
}

// The file name of a chart, without its ending.
const svgName = plot => (plot.host.dataset.name ?? plot.host.id.replace(/-plot$/, "")).toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[-.]+/, "");

// What `plot` shows, as SVG in light colours, `width` pixels wide, at the zoom with which it was first drawn.
async function svgOf(plot, width) {
  const root = document.documentElement;
  const [getContext, NativePath] = [HTMLCanvasElement.prototype.getContext, window.Path2D];
  const host = document.createElement("div");
  const was = root.classList.contains("printing");
  root.classList.add("printing");
  let chart;
  try {
    let finished;
    const drawn = new Promise(resolve => { finished = resolve; });
    const [options, data] = plot.options(finished);
    let drawing;
    HTMLCanvasElement.prototype.getContext = function () { return drawing ??= new Drawing(this, svgName(plot)); };
    window.Path2D = Outline;
    chart = new uPlot({ ...options, width }, data, host);
    HTMLCanvasElement.prototype.getContext = getContext;
    await drawn;
    const below = svgLegend(chart, width, plot.height);
    const height = plot.height + below.height;
    return tag("svg", {
      xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`,
      "font-family": "'Liberation Sans', Arial, sans-serif",
    }, tag("title", {}, escaped(plot.label)), tag("rect", { width, height, fill: "#fff" }),
    tag("g", devicePixelRatio === 1 ? {} : { transform: `scale(${1 / devicePixelRatio})` }, ...drawing.parts), ...below.parts) + "\n";
  } finally {
    HTMLCanvasElement.prototype.getContext = getContext;
    window.Path2D = NativePath;
    root.classList.toggle("printing", was);
    chart?.destroy();
  }
}

// A button below a chart.
function offerSvg(plot) {
  plot.host.after(element("p", { class: "save" }, element("button", {
    type: "button",
    title: "Save this chart as SVG",
    onclick: async () => {
      const link = element("a", { download: `${svgName(plot)}.svg` });
      link.href = URL.createObjectURL(new Blob([await svgOf(plot, plot.host.clientWidth)], { type: "image/svg+xml" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    },
  }, "SVG")));
}

// All charts, also those that are folded, in an element of the page, for a program that opens it with `#svg`.
async function leaveCharts() {
  for (const folded of document.querySelectorAll("details")) {
    folded.open = true;
    folded.dispatchEvent(new Event("toggle"));
  }
  const charts = [];
  for (const plot of plots) charts.push({ name: svgName(plot), svg: await svgOf(plot, 800) });
  document.body.append(element("script", { type: "application/json", id: "charts" }, JSON.stringify(charts).replaceAll("<", "\\u003c")));
}
