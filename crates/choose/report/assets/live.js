
// ---- what the server says --------------------------------------------------------------------------------------

// How often the server is asked, in milliseconds, while somebody looks.
const EVERY = 2000;
// Colours of curves; those beyond are grey.
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];

const view = { export: "", span: 0, history: null, status: null, at: null };

async function ask(path) {
  const response = await fetch(path, { cache: "no-store" });
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`.trim());
  return response.json();
}

const span = () => view.history.spans[view.span];
const columns = names => names.map(name => span().columns[name]);
const seconds = () => span().times_ms.map(ms => ms / 1000);

// ---- charts over time ------------------------------------------------------------------------------------------

const perSecond = n => n == null ? "–" : `${threeDigits.format(n)}/s`;
const bytesPerSecond = n => n == null ? "–" : `${bytes(n)}/s`;
const shownPercent = n => n == null ? "–" : `${n.toFixed(1)} %`;
const inPercent = values => values.map(value => value == null ? null : 100 * value);
const powersOfTwo = Array.from({ length: 60 }, (_, k) => 2 ** k);
const powersOfTen = (_, ticks) => ticks.map(n => Math.abs(Math.log10(n) - Math.round(Math.log10(n))) < 1e-9 ? n : null);

const charts = [
  { id: "hits", title: "Hit ratio", columns: ["hit_ratio"], names: ["referenced blocks that were in memory"], show: shownPercent,
    change: inPercent, range: () => [0, 100] },
  { id: "requests", title: "Requests", columns: ["reads_per_s", "writes_per_s"], names: ["reads", "writes"], show: perSecond },
  { id: "latency", title: "Latency", columns: ["p50_us", "p99_us"], names: ["median", "99 % are below"], show: latency, log: true },
  { id: "clients", title: "Clients", columns: ["read_bytes_per_s", "written_bytes_per_s"], names: ["read", "written"],
    show: bytesPerSecond, binary: true },
  { id: "devices", title: "Devices", columns: ["device_read_bytes_per_s", "device_written_bytes_per_s"], names: ["read", "written"],
    show: bytesPerSecond, binary: true },
  { id: "dirty", title: "Dirty data", columns: ["dirty_bytes"], names: ["not on the device yet"], show: bytes, binary: true },
  { id: "loads", title: "Levels", columns: ["level_hits_per_s"], names: ["blocks loaded from levels"], show: perSecond,
    isShown: () => view.status.levels.length > 0 },
];

const clock = (s, withSeconds) => new Date(1000 * s).toLocaleTimeString("en-GB", {
  hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined,
});

function decades(min, max) {
  if (!(min > 0)) return [10, 1000];
  const [low, high] = [10 ** Math.floor(Math.log10(min)), 10 ** Math.ceil(Math.log10(max))];
  return [low, high > low ? high : 10 * low];
}

function chartOf(of) {
  const colours = COLOURS.slice(0, of.columns.length);
  const values = of.columns.map(() => document.createTextNode(""));
  of.legend = at => values.forEach((text, i) => {
    const drawn = of.data()[i + 1];
    text.data = ` ${of.show(drawn[at ?? drawn.length - 1])}`;
  });
  of.data = () => [seconds(), ...columns(of.columns).map(of.change ?? (column => column))];
  of.host = element("div", { class: "plot", id: `plot-${of.id}`, tabindex: "0", role: "group", "aria-label": of.title });
  of.figure = element("figure", {}, element("h3", {}, of.title), element("p", { class: "row" }, ...of.names.map((name, i) =>
    element("span", {}, swatch(colours[i], null, 2), name, values[i]))), of.host);
  $("charts").append(of.figure);
  const make = () => ({
    data: of.data(),
    scales: {
      x: { time: true, range: () => {
        const end = view.history.spans[0].times_ms.at(-1) / 1000;
        return [end - (view.span === 0 ? 300 : 3600), end];
      } },
      y: { distr: of.log ? 3 : 1, range: of.range ?? ((_, min, max) => of.log ? decades(min, max) : fromZero(max)) },
    },
    axes: [
      bottom("", { values: (_, ticks) => ticks.map(tick => clock(tick, view.span === 0 && tick % 60 !== 0)), space: 44, labelSize: 0 }),
      left("", {
        labelSize: 0,
        values: (_, ticks) => ticks.map(tick => tick == null ? "" : of.range ? `${tick} %` : of.show(tick)),
        ...of.binary && { incrs: powersOfTwo },
        ...of.log && { filter: powersOfTen, grid: { stroke: colour("--line"), width: 1, filter: powersOfTen },
          ticks: { stroke: colour("--line"), width: 1, size: 5, filter: powersOfTen } },
      }),
    ],
    series: [{}, ...of.names.map((label, i) => ({
      label, stroke: () => colour(colours[i]), width: 1.75, points: { show: drawn => drawn.data[0].length < 3, size: 5 },
    }))],
    cursor: { y: false, sync: { key: "live" }, drag: { x: false, y: false } },
  });
  of.drawn = overTime(of.host, `${of.title} over time`, 180, make, at => {
    view.at = at;
    $("at").textContent = at == null ? "" : `At ${clock(seconds()[at], true)}`;
    charts.forEach(other => other.drawn && other.legend(at));
  });
}

function drawCharts() {
  for (const of of charts) {
    const isShown = of.isShown?.() ?? true;
    if (!of.figure && isShown) chartOf(of);
    if (!of.figure) continue;
    of.figure.hidden = !isShown;
    of.drawn.chart.setData(of.data());
    of.legend(view.at);
  }
  // A chart that was drawn before its neighbours is too wide.
  fitPlots();
}

// ---- tables ----------------------------------------------------------------------------------------------------

function table(id, head, rows) {
  const cell = (tag, text, i) => {
    const [shown, kind] = Array.isArray(text) ? text : [text, null];
    return element(tag, { class: [i === 0 && "text", kind].filter(Boolean).join(" ") || null }, shown);
  };
  const line = (tag, texts) => element("tr", {}, ...texts.map((text, i) => cell(tag, text, i)));
  $(id).replaceChildren(element("thead", {}, line("th", head)), element("tbody", {}, ...rows.map(row => line("td", row))));
}

function state(disk) {
  if (disk.data_lost) return ["data lost", "bad"];
  if (disk.failing) return ["failing", "bad"];
  if (disk.targets.some(target => target.trouble)) return ["trouble", "bad"];
  return "ok";
}

const inCharge = chosen => chosen.candidates.filter(of => of.shards > 0).map(of => of.policy).join(", ");
const blocksIn = count => bytes(4096 * count);

function drawTables() {
  const { exports, levels, tenants = [], pending = [] } = view.status;
  const p99 = of => of.count === 0 ? "–" : latency(of.p99_us);
  table("exports-table", ["Export", "State", "Hit %", "Reads/s", "Writes/s", "Read/s", "Written/s", "p99 miss", "p99 write", "Dirty", "Slow",
    "Clients", "Size"], exports.map(of => [
    of.name, state(of), percentOf(of.rates.hit_ratio), threeDigits.format(of.rates.reads_per_s), threeDigits.format(of.rates.writes_per_s),
    bytes(of.rates.read_bytes_per_s), bytes(of.rates.written_bytes_per_s), p99(of.miss_latency), p99(of.write_latency), bytes(of.dirty_bytes),
    whole(of.slow_requests), whole(of.connections), bytes(of.size),
  ]));
  const troubles = exports.flatMap(of => of.targets.filter(target => target.trouble).map(target =>
    `${of.name}: ${target.target}: ${target.trouble}`));
  troubles.push(...pending.map(of => `${of.name}: ${of.state} for ${of.seconds} s`));
  $("troubles").replaceChildren(...troubles.map(text => element("li", {}, text)));
  $("levels").hidden = levels.length === 0;
  table("levels-table", ["Level", "State", "Size", "Stored", "Loaded", "Written", "Missed", "Faults"], levels.map(of => [
    of.path, of.off ? ["off", "bad"] : "on", bytes(of.bytes), blocksIn(of.stored), blocksIn(of.hits), blocksIn(of.stores), blocksIn(of.missed),
    whole(of.faults),
  ]));
  $("tenants").hidden = tenants.length === 0;
  table("tenants-table", ["Tenant", "Owns", "Share", "Policy", "Predicted", "Unpredicted"], tenants.map(of => [
    of.name, bytes(of.resident_bytes), bytes(of.share), of.chosen ? inCharge(of.chosen) : of.policy, whole(of.predicted), whole(of.unpredicted),
  ]));
}

// Choices and curves are of the whole cache, or of each tenant.
function ofEach(key) {
  const { tenants = [] } = view.status;
  return [{ ...view.status, name: "whole cache" }, ...tenants].filter(of => of[key]).map(of => [of.name, of[key]]);
}

function drawPolicies() {
  const choices = ofEach("chosen");
  $("policies").hidden = choices.length === 0;
  table("policies-table", ["Of", "Policy", "Decides", "Would hit %"], choices.flatMap(([name, chosen]) => chosen.candidates.map(of => [
    name, of.policy, of.shards > 0 ? `in ${of.shards} ${of.shards === 1 ? "shard" : "shards"}` : "–", percentOf(of.hit_ratio),
  ])));
}

let memoryPlot = null;

function drawMemory() {
  const known = ofEach("curve").filter(([, curve]) => curve.points.some(point => point.hit_ratio != null));
  $("memory").hidden = known.length === 0;
  if (known.length === 0) return;
  $("memory-about").textContent = "The hit ratio that the cache, or each tenant, would have with so many times its memory, by simulation of "
    + "sampled blocks, and half the width of the 95 % confidence interval.";
  const times = [...new Set(known.flatMap(([, curve]) => curve.points.map(point => point.times)))].sort((a, b) => a - b);
  const pointAt = (curve, at) => curve.points.find(point => point.times === at);
  const shown = point => point?.hit_ratio == null ? "–" : `${percentOf(point.hit_ratio)} ±${percentOf(point.error)}`;
  const colourAt = i => COLOURS[i] ?? "--grey";
  const named = (name, i) => [element("span", { class: "named" }, swatch(colourAt(i), null, 2), name), null];
  table("memory-table", ["Of", ...times.map(at => `×${at}`)], known.map(([name, curve], i) =>
    [named(name, i), ...times.map(at => shown(pointAt(curve, at)))]));
  const data = [times, ...known.map(([, curve]) => times.map(at => {
    const ratio = pointAt(curve, at)?.hit_ratio;
    return ratio == null ? null : 100 * ratio;
  }))];
  if (memoryPlot?.chart.series.length === data.length) {
    memoryPlot.chart.setData(data);
    return;
  }
  const make = () => ({
    data,
    scales: { x: { time: false, distr: 3, log: 2 }, y: { range: () => [0, 100] } },
    axes: [
      bottom("Times the memory", { values: (_, ticks) => ticks.map(tick => tick == null ? "" : `×${tick}`) }),
      left("Hit ratio (%)", {}),
    ],
    series: [{}, ...known.map(([label], i) => ({ label, stroke: () => colour(colourAt(i)), width: 2, points: { show: true, size: 6 } }))],
    cursor: { x: false, y: false, drag: { x: false, y: false } },
  });
  if (memoryPlot) {
    memoryPlot.chart.destroy();
    plots.splice(plots.indexOf(memoryPlot), 1);
  }
  memoryPlot = plot($("memory-plot"), "Hit ratio by memory", 220, make);
}

// ---- the page --------------------------------------------------------------------------------------------------

function drawNow() {
  const { status } = view;
  const last = name => view.history.spans[0].columns[name].at(-1);
  const names = { policy: status.chosen ? `${status.policy}: ${inCharge(status.chosen)}` : status.policy };
  const tiles = [
    ["Hit ratio", shownPercent(last("hit_ratio") == null ? null : 100 * last("hit_ratio"))],
    ["Reads", perSecond(last("reads_per_s"))],
    ["Writes", perSecond(last("writes_per_s"))],
    ["Latency, p99", latency(last("p99_us"))],
    ["Dirty", bytes(last("dirty_bytes"))],
    ["Memory in use", `${bytes(status.resident_bytes)} of ${bytes(status.memory_bytes)}`, "words"],
    ["Policy", names.policy, "words"],
    ["Waiting for devices", whole(status.device_queue)],
    ["Waiting for room", whole(status.waiting)],
    ["Clients", `${whole(status.connections)} of ${whole(status.connections_max)}`, "words"],
    ["Slow requests", whole(status.exports.reduce((sum, of) => sum + of.slow_requests, 0))],
  ];
  $("now").replaceChildren(...tiles.map(([name, value, kind]) =>
    element("div", {}, element("dt", {}, name), element("dd", { class: kind }, value))));
  $("kind").textContent = `nigh ${status.version}, up for ${duration(status.uptime_seconds)}`;
  $("title").textContent = location.host;
  document.title = `nigh: ${location.host}`;
}

function drawChoice() {
  const select = $("export");
  const wanted = ["", ...view.history.exports];
  const there = [...select.options].map(option => option.value);
  if (wanted.join("\n") === there.join("\n")) return;
  select.replaceChildren(...wanted.map(name => element("option", { value: name }, name === "" ? "all" : name)));
  select.value = view.export;
}

// The figures of the last answer stay, with the reason why there are no others.
function report(error) {
  const since = view.history?.spans[0].times_ms.at(-1);
  $("state").hidden = error == null;
  if (error == null) return;
  const until = since ? ` The figures are those until ${clock(since / 1000, true)}.` : "";
  $("state").textContent = `The server does not answer (${error.message}).${until}`;
}

async function look() {
  try {
    const name = view.export;
    const query = name === "" ? "" : `?export=${encodeURIComponent(name)}`;
    const [history, status] = await Promise.all([ask(`history.json${query}`), ask("json")]);
    // Another one was chosen meanwhile.
    if (name !== view.export) return;
    Object.assign(view, { history, status });
  } catch (error) {
    if (view.export !== "" && error.message.startsWith("404")) {
      view.export = "";
      $("export").value = "";
    }
    return report(error);
  }
  report(null);
  if (view.history.spans[0].times_ms.length === 0) return;
  drawChoice();
  drawNow();
  drawCharts();
  drawTables();
  drawPolicies();
  drawMemory();
  document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
}

$("controls").addEventListener("submit", event => event.preventDefault());
$("export").addEventListener("change", () => {
  view.export = $("export").value;
  look();
});
for (const radio of document.querySelectorAll("input[name=span]")) {
  radio.addEventListener("change", () => {
    view.span = Number(radio.value);
    view.at = null;
    if (view.history) drawCharts();
  });
}
document.addEventListener("visibilitychange", () => document.hidden || look());

async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, EVERY);
}
watch();
