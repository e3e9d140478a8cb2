"use strict";

// What both pages are made of.

const $ = id => document.getElementById(id);

// Text goes into the document through text nodes only: names and command lines are foreign.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(child => child != null));
  return made;
}

// ---- numbers ----------------------------------------------------------------------------------------------------

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const threeDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const percentOf = (ratio, digits = 1) => ratio == null ? "–" : (100 * ratio).toFixed(digits);
const points = difference => (difference >= 0 ? "+" : "−") + Math.abs(100 * difference).toFixed(1);
const whole = n => n == null ? "–" : integer.format(n);

function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return `${n >= 100 ? integer.format(n) : threeDigits.format(n)} ${units[unit]}`;
}

// Axis labels: exact up to six digits, then with as many digits as neighbouring labels need to differ.
function count(n) {
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (Math.abs(n) >= unit) return `${Number((n / unit).toFixed(4))} ${name}`;
  }
  return new Intl.NumberFormat("en", { maximumFractionDigits: 2 }).format(n);
}

function duration(s) {
  if (s < 120) return `${threeDigits.format(s)} s`;
  return s < 7200 ? `${threeDigits.format(s / 60)} min` : `${threeDigits.format(s / 3600)} h`;
}

const latency = us => us == null ? "–" : us < 1000 ? `${threeDigits.format(us)} µs` : `${threeDigits.format(us / 1000)} ms`;

// ---- plots ------------------------------------------------------------------------------------------------------

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plots = [];

// Called with each new plot.
let onPlot = () => {};

// A plot redraws itself from `make` when the theme or the paper changes, and keeps its zoom when the width does.
// It says on its host what it drew: `data-series` and `data-points`.
function plot(host, label, height, make) {
  const options = drawn => {
    const { data, hooks = {}, cursor = {}, ...options } = make();
    return [{
      width: host.clientWidth,
      height,
      legend: { show: false },
      focus: { alpha: 1 },
      padding: [10, 30, 0, 0],
      cursor: { points: { show: false }, focus: { prox: -1 }, drag: { x: true, y: true, uni: 30 }, ...cursor },
      hooks: { ...hooks, draw: [...(hooks.draw ?? []), drawn] },
      ...options,
    }, data];
  };
  const self = {
    chart: null, host, label, height, options,
    draw() {
      self.chart?.destroy();
      self.chart = new uPlot(...options(chart => {
        const drawn = chart.series.map((series, i) => i > 0 && series.show ? chart.data[i] : []);
        host.dataset.series = drawn.filter(values => values.length > 0).length;
        host.dataset.points = drawn.flat().filter(value => value != null).length;
      }), host);
      self.chart.ctx.canvas.setAttribute("role", "img");
      self.chart.ctx.canvas.setAttribute("aria-label", label);
    },
    fit: () => self.chart.setSize({ width: host.clientWidth, height }),
  };
  plots.push(self);
  self.draw();
  onPlot(self);
  return self;
}

// A plot over time. `show` gets the index of the point that is pointed at, null if there is none; arrow keys go from one to the next.
function overTime(host, label, height, make, show) {
  let at = 0;
  const drawn = plot(host, label, height, () => ({
    ...make(),
    hooks: {
      setCursor: [chart => {
        at = chart.cursor.idx ?? at;
        show(chart.cursor.idx);
      }],
    },
  }));
  host.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step == null) return;
    event.preventDefault();
    const times = drawn.chart.data[0];
    const next = Math.min(times.length - 1, Math.max(0, at + step));
    drawn.chart.setCursor({ left: drawn.chart.valToPos(times[next], "x"), top: 0 }, true, true);
  });
  return drawn;
}

// A plot that was drawn before its neighbours in a grid is too wide.
const fitPlots = () => plots.forEach(plot => plot.fit());
addEventListener("resize", fitPlots);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(plot => plot.draw()));
for (const event of ["beforeprint", "afterprint"]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("printing", event === "beforeprint");
    document.body.style.width = event === "beforeprint" ? "680px" : "";
    plots.forEach(plot => plot.draw());
  });
}

function axis(label, options) {
  const font = "12px system-ui, 'Liberation Sans', Arial, sans-serif";
  return {
    label, font, labelFont: font, labelSize: 20, labelGap: 2,
    stroke: colour("--ink"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1, size: 5 },
    ...options,
  };
}
const bottom = (label, options) => axis(label, { size: 30, space: 80, ...options });
const left = (label, options) => axis(label, {
  size: (_, labels) => 14 + 7 * Math.max(3, ...(labels ?? []).map(text => text.length)),
  ...options,
});

// Ranges of axes: a single value gets room on both sides.
const around = (min, max) => min === max ? [min * 0.9, max * 1.1 + 1] : [min, max];
const fromZero = max => [0, max > 0 ? max * 1.05 : 1];

function swatch(colourName, dash, width) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const attributes = { x1: 0, x2: 34, y1: 6, y2: 6, "stroke-width": width, "stroke-dasharray": dash?.join(" ") ?? "none" };
  for (const [name, value] of Object.entries(attributes)) line.setAttribute(name, value);
  line.style.stroke = `var(${colourName})`;
  svg.setAttribute("class", "swatch");
  svg.setAttribute("aria-hidden", "true");
  svg.append(line);
  return svg;
}
