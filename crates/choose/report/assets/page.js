"use strict";

const source = document.getElementById("report").textContent;
const report = JSON.parse(source);
const sizeName = size => `${whole(size.blocks)} blocks (${bytes(size.bytes)})`;

// ---- curves -----------------------------------------------------------------------------------------------------

const curves = report.curves.filter(curve => curve.points.length > 0).map(curve => ({
  ...curve,
  points: curve.points.slice().sort((a, b) => a.size_blocks - b.size_blocks),
  shown: true,
}));
const bounds = curves.filter(curve => curve.clairvoyant);
const choices = curves.filter(curve => !curve.clairvoyant);
const boundName = bounds.length === 1 ? bounds[0].policy : "the bound";

// The sizes that tables and readouts use: those of two policies, or of as many more as leave 40 sizes or fewer. Exact
// curves alone have too many to list: then 24 of them, spread over the logarithmic axis.
const sizes = (() => {
  const seen = new Map();
  for (const curve of curves) {
    for (const { size_blocks: blocks, size_bytes: bytes } of curve.points) {
      const size = seen.get(blocks) ?? { blocks, bytes, policies: 0 };
      size.policies++;
      seen.set(blocks, size);
    }
  }
  const all = [...seen.values()].sort((a, b) => a.blocks - b.blocks);
  const most = Math.max(...all.map(size => size.policies));
  for (let policies = Math.min(2, most); policies <= most; policies++) {
    const listed = all.filter(size => size.policies >= policies);
    if (listed.length <= 40) return listed;
  }
  const listed = all.filter(size => size.policies === most);
  const [low, high] = [Math.max(1, listed[0].blocks), listed.at(-1).blocks];
  const wanted = Array.from({ length: 24 }, (_, i) => low * (high / low) ** (i / 23));
  return [...new Set(wanted.map(blocks => listed.find(size => size.blocks >= blocks) ?? listed.at(-1)))];
})();

for (const curve of curves) curve.bySize = new Map(curve.points.map(point => [point.size_blocks, point]));

// A curve with more points than this has no dots, and is known between the sizes that were replayed, too.
const DOTS_MOST = 60;
const isDense = curve => curve.points.length > DOTS_MOST;

// The policy's miss ratio at a size: measured there, or between its two neighbours.
function missAt(curve, blocks) {
  const point = curve.bySize.get(blocks);
  if (point) return { miss: point.miss_ratio, error: point.error, exact: true };
  const after = curve.points.findIndex(point => point.size_blocks > blocks);
  if (after <= 0) return { miss: null };
  const [a, b] = [curve.points[after - 1], curve.points[after]];
  const part = (blocks - a.size_blocks) / (b.size_blocks - a.size_blocks);
  return { miss: a.miss_ratio + part * (b.miss_ratio - a.miss_ratio), exact: isDense(curve) };
}

const least = (group, blocks) => {
  const misses = group.map(curve => curve.bySize.get(blocks)?.miss_ratio).filter(miss => miss != null);
  return misses.length > 0 ? Math.min(...misses) : null;
};
const boundAt = blocks => least(bounds, blocks);

const state = { ratio: "hit", scale: "linear", unit: "bytes", size: sizes[0] };
const shownRatio = miss => miss == null ? null : state.ratio === "miss" ? miss : 1 - miss;

function mean(curve) {
  const misses = sizes.map(size => curve.bySize.get(size.blocks)?.miss_ratio);
  return misses.some(miss => miss == null) ? null : misses.reduce((a, b) => a + b, 0) / misses.length;
}
for (const curve of curves) curve.mean = mean(curve);
const ranked = choices.filter(curve => curve.mean != null).sort((a, b) => a.mean - b.mean);
const leader = ranked.length > 1 ? ranked[0] : null;

// LRU, bounds and the two best policies (of `best`, in their order) are in colour; the others are grey until they are pointed at.
// Grey curves are drawn first.
function dress(list, best) {
  const isLru = curve => curve.policy === "lru";
  const chosen = best.filter(curve => !isLru(curve) && !curve.clairvoyant).slice(0, 2);
  let greys = 0;
  for (const curve of list) {
    const place = chosen.indexOf(curve);
    const [rank, colour, width, dash] = curve.clairvoyant ? [1, "--ink", 2, [7, 4]]
      : isLru(curve) ? [2, "--c0", 2, null]
      : place >= 0 ? [4 - place, `--c${place + 1}`, place === 0 ? 2.75 : 2, null]
      : [0, "--grey", 1.35, [null, [7, 4], [2, 3], [10, 3, 2, 3]][greys++ % 4]];
    Object.assign(curve, { rank, colour, width, dash });
  }
  list.sort((a, b) => a.rank - b.rank).forEach((curve, index) => { curve.index = index; });
}
dress(curves, ranked.length > 0 ? ranked : choices);

const virtualTime = () => bottom("Virtual time (references)", { values: (_, ticks) => ticks.map(count) });
// Ticks of a logarithmic axis: 1-2-5 (or powers of two for bytes), thinned to what fits.
function logTicks(chart, _, min, max) {
  const room = Math.max(2, chart.bbox.width / devicePixelRatio / 62);
  const base = state.unit === "bytes" ? 2 : 10;
  const ladder = (steps, stride) => {
    const ticks = [];
    for (let k = Math.floor(Math.log(min) / Math.log(base) / stride) * stride; base ** k <= max; k += stride) {
      for (const step of steps) if (step * base ** k >= min && step * base ** k <= max) ticks.push(step * base ** k);
    }
    return ticks;
  };
  const candidates = base === 2 ? [1, 2, 3, 5, 10].map(stride => ladder([1], stride))
    : [ladder([1, 2, 3, 4, 5, 6, 8], 1), ladder([1, 2, 5], 1), ladder([1], 1), ladder([1], 2), ladder([1], 3)];
  return candidates.find(ticks => ticks.length <= room) ?? candidates.at(-1);
}

// ---- main chart -------------------------------------------------------------------------------------------------

let pointed = null;
const strokeOf = curve => colour(curve === pointed && curve.rank === 0 ? "--pointed" : curve.colour);
const sizeOn = point => state.unit === "bytes" ? point.size_bytes ?? point.bytes : point.size_blocks ?? point.blocks;

function errorBars(chart) {
  chart.ctx.save();
  for (const curve of curves.filter(curve => curve.shown)) {
    chart.ctx.strokeStyle = strokeOf(curve);
    chart.ctx.globalAlpha = chart.series[curve.index + 1].alpha;
    chart.ctx.lineWidth = devicePixelRatio;
    chart.ctx.beginPath();
    for (const point of curve.points.filter(point => point.error > 0 && point.miss_ratio != null)) {
      const x = chart.valToPos(sizeOn(point), "x", true);
      if (!(x >= chart.bbox.left && x <= chart.bbox.left + chart.bbox.width)) continue;
      const y = [-1, 1].map(sign => chart.valToPos(100 * (shownRatio(point.miss_ratio) + sign * point.error), "y", true));
      const [top, foot] = [chart.bbox.top, chart.bbox.top + chart.bbox.height];
      chart.ctx.moveTo(x, Math.min(foot, Math.max(top, y[0])));
      chart.ctx.lineTo(x, Math.min(foot, Math.max(top, y[1])));
    }
    chart.ctx.stroke();
  }
  chart.ctx.restore();
}

function curvePlot() {
  const log = state.scale === "log";
  const tables = curves.map(curve => {
    const drawn = log ? curve.points.filter(point => point.size_blocks > 0) : curve.points;
    return [drawn.map(sizeOn), drawn.map(point => shownRatio(point.miss_ratio) == null ? null : 100 * shownRatio(point.miss_ratio))];
  });
  const marker = element("div", { class: "marker" });
  // What was replayed: LRU's curve goes on at both ends. A single size has no range.
  const [low, high] = [sizeOn(sizes[0]), sizeOn(sizes.at(-1))];
  return {
    data: uPlot.join(tables),
    scales: {
      x: {
        time: false, distr: log ? 3 : 1, log: state.unit === "bytes" ? 2 : 10,
        range: (_, min, max) => low === high ? around(low, high) : [Math.max(min, low), Math.min(max, high)],
      },
      y: { range: (_, min, max) => [0, min == null ? 100 : Math.min(100, Math.max(1, max * 1.03))] },
    },
    axes: [
      bottom(`Cache size (${state.unit})`, {
        values: (_, ticks) => ticks.map(state.unit === "bytes" ? bytes : count),
        filter: (_, ticks) => ticks,
        ...log && { splits: logTicks },
        ...!log && state.unit === "bytes" && { incrs: Array.from({ length: 60 }, (_, k) => 2 ** k) },
      }),
      left(`${state.ratio === "miss" ? "Miss" : "Hit"} ratio (%)`, { values: (_, ticks) => ticks.map(count) }),
    ],
    series: [{}, ...curves.map(curve => ({
      label: curve.policy,
      show: curve.shown,
      stroke: () => strokeOf(curve),
      width: curve.width,
      dash: curve.dash,
      points: { show: !isDense(curve), size: curve === leader ? 6 : 4.5, fill: () => strokeOf(curve), width: 0 },
    }))],
    cursor: { x: false, y: false },
    hooks: {
      ready: [chart => {
        chart.over.append(marker);
        placeMarker(chart, marker);
      }],
      setScale: [chart => placeMarker(chart, marker)],
      setSize: [chart => placeMarker(chart, marker)],
      setCursor: [chart => {
        if (!(chart.cursor.left >= 0)) return highlight(null);
        const size = sizeAt(chart);
        if (size.blocks !== state.size.blocks) {
          state.size = size;
          placeMarker(chart, marker);
          curveLegend();
        }
        const away = curve => {
          const shown = shownRatio(missAt(curve, size.blocks).miss);
          return shown == null ? Infinity : Math.abs(chart.valToPos(100 * shown, "y") - chart.cursor.top);
        };
        const [distance, nearest] = curves.filter(curve => curve.shown).map(curve => [away(curve), curve])
          .reduce((best, one) => one[0] < best[0] ? one : best, [Infinity, null]);
        highlight(distance <= 8 ? nearest : null);
      }],
      draw: [errorBars],
    },
  };
}

// The size that the cursor is at: one that was replayed if it is near, and else any, as long as a curve is known there.
function sizeAt(chart) {
  const distance = size => Math.abs(chart.valToPos(sizeOn(size), "x") - chart.cursor.left);
  const nearest = sizes.reduce((best, size) => distance(size) < distance(best) ? size : best);
  if (distance(nearest) <= 6 || !curves.some(curve => curve.shown && isDense(curve))) return nearest;
  const block = sizes[0].bytes / sizes[0].blocks;
  const blocks = Math.max(1, Math.round(chart.posToVal(chart.cursor.left, "x") / (state.unit === "bytes" ? block : 1)));
  return { blocks, bytes: blocks * block };
}

function placeMarker(chart, marker) {
  const x = chart.valToPos(sizeOn(state.size), "x");
  marker.style.left = `${x}px`;
  marker.hidden = !(x >= 0 && x <= chart.over.clientWidth);
}

let curveChart;

function highlight(chosen) {
  if (chosen === pointed || curveChart == null) return;
  pointed = chosen;
  const chart = curveChart.chart;
  for (const curve of curves) {
    chart.series[curve.index + 1].width = curve === chosen ? 4 : curve.width;
    chart.series[curve.index + 1].alpha = chosen == null || curve === chosen ? 1 : 0.3;
  }
  for (const row of document.querySelectorAll("#curve-legend tbody tr")) {
    row.classList.toggle("pointed", chosen != null && row.dataset.policy === chosen.policy);
  }
  chart.redraw(false);
}

function toggle(curve, shown) {
  curve.shown = shown;
  curveChart.chart.setSeries(curve.index + 1, { show: shown });
}

// The legend is the readout: all policies at the size pointed at, best first.
function curveLegend() {
  const size = state.size;
  const bound = boundAt(size.blocks);
  const rows = curves.map(curve => ({ curve, ...missAt(curve, size.blocks) }))
    .sort((a, b) => (a.miss ?? 2) - (b.miss ?? 2) || a.curve.index - b.curve.index);
  const table = element("table", {},
    element("thead", {}, element("tr", {},
      element("th", { scope: "col" }, "Policy"),
      element("th", { scope: "col" }, `${state.ratio} %`),
      bound == null ? null : element("th", { scope: "col", title: `Percentage points from ${boundName}` }, `${state.ratio === "miss" ? "over" : "under"} ${boundName}`))),
    element("tbody", {}, ...rows.map(({ curve, miss, error, exact }) => {
      const button = element("button", {
        type: "button", "aria-pressed": String(curve.shown), title: "Show or hide this policy",
        onclick: () => { toggle(curve, !curve.shown); button.setAttribute("aria-pressed", String(curve.shown)); },
        onfocus: () => highlight(curve), onblur: () => highlight(null),
      }, swatch(curve.colour, curve.dash, curve.width), curve.policy);
      return element("tr", { class: curve === leader && "leader", "data-policy": curve.policy, onmouseenter: () => highlight(curve), onmouseleave: () => highlight(null) },
        element("td", {}, button),
        element("td", { title: exact === false && "Between the sizes that were replayed" },
          `${exact === false && miss != null ? "≈ " : ""}${percentOf(shownRatio(miss))}${error ? ` ± ${percentOf(error)}` : ""}`),
        bound == null ? null : element("td", {}, miss == null || curve.clairvoyant ? "" : points(state.ratio === "miss" ? miss - bound : bound - miss)));
    })));
  $("curve-at").textContent = `At ${sizeName(size)}`;
  $("curve-legend").replaceChildren(table);
}

function curvesSection() {
  if (curves.length === 0) return;
  $("curves").hidden = false;
  const spread = size => {
    const misses = choices.map(curve => curve.bySize.get(size.blocks)?.miss_ratio).filter(miss => miss != null);
    return misses.length > 1 ? Math.max(...misses) - Math.min(...misses) : 0;
  };
  state.size = sizes.reduce((best, size) => spread(size) > spread(best) ? size : best, sizes[Math.floor(sizes.length / 2)]);
  curveLegend();
  curveChart = plot($("curve-plot"), `Hit ratio against cache size of ${curves.map(curve => curve.policy).join(", ")}`, 460, curvePlot);

  $("controls").addEventListener("change", event => {
    state[event.target.name] = event.target.value;
    curveChart.draw();
    curveLegend();
    if (event.target.name === "ratio") {
      $("curves-title").textContent = `${state.ratio === "miss" ? "Miss" : "Hit"} ratio curves`;
      resultsSection();
    }
  });
  for (const [id, shown] of [["show-all", true], ["show-none", false]]) {
    $(id).addEventListener("click", () => { curves.forEach(curve => toggle(curve, shown)); curveLegend(); });
  }
  $("unzoom").addEventListener("click", () => curveChart.draw());
  $("curve-plot").addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step == null) return;
    event.preventDefault();
    const next = step > 0 ? sizes.find(size => size.blocks > state.size.blocks) : sizes.findLast(size => size.blocks < state.size.blocks);
    state.size = next ?? state.size;
    placeMarker(curveChart.chart, curveChart.chart.over.querySelector(".marker"));
    curveLegend();
  });
}

// ---- tables -----------------------------------------------------------------------------------------------------

// `columns`: { head, note, key: row => number or string or null, text: row => string, title: row => string,
// best: row => bool, isText, highFirst: whether the first click sorts down }. `sorted` is the column sorted by at first.
function sortable(table, columns, rows, sorted) {
  const order = { column: sorted, descending: columns[sorted].highFirst === true };
  const body = element("tbody");
  const heads = columns.map((column, i) => element("th", { scope: "col", class: column.isText && "text" },
    element("button", { type: "button", onclick: () => {
      order.descending = order.column === i ? !order.descending : column.highFirst === true;
      order.column = i;
      fill();
    } }, column.head), column.note && element("small", {}, column.note)));
  function fill() {
    heads.forEach((head, i) => {
      if (i === order.column) head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const { key } = columns[order.column];
    const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    const sortedRows = rows.slice().sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x == null || y == null) return (x == null) - (y == null);
      return order.descending ? compare(y, x) : compare(x, y);
    });
    body.replaceChildren(...sortedRows.map(row => element("tr", {}, ...columns.map(column => element("td", {
      class: [column.isText && "text", column.best?.(row) && "best"].filter(Boolean).join(" ") || null,
      title: column.title?.(row),
    }, column.text(row))))));
  }
  fill();
  table.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), body);
}

function resultsSection() {
  if (curves.length === 0) return;
  $("results").hidden = false;
  const bestAt = new Map(sizes.map(size => [size.blocks, least(choices, size.blocks)]));
  // Whoever shows the same digits is as good as the best.
  const isBest = (curve, blocks) => !curve.clairvoyant && choices.length > 1 && percentOf(curve.bySize.get(blocks)?.miss_ratio) === percentOf(bestAt.get(blocks));
  const over = (miss, blocks) => {
    const bound = boundAt(blocks);
    return miss == null || bound == null ? null : miss - bound;
  };
  const highFirst = state.ratio === "hit";
  const worst = curve => {
    const overs = sizes.map(size => over(curve.bySize.get(size.blocks)?.miss_ratio, size.blocks)).filter(value => value != null);
    return overs.length > 0 && !curve.clairvoyant ? Math.max(...overs) : null;
  };

  $("results-about").textContent = `${state.ratio === "miss" ? "Miss" : "Hit"} ratio in percent by cache size` +
    (choices.length > 1 ? "; the best at each size is marked." : ".") +
    (bounds.length > 0 ? ` ${bounds.map(curve => curve.policy).join(", ")} must know the future: “within” is the most percentage points by which a policy falls short at any of these sizes.` : "") +
    " A heading sorts by its column.";

  sortable($("matrix"), [
    { head: "Policy", isText: true, key: curve => curve.policy, text: curve => curve.policy },
    { head: "mean", highFirst, key: curve => shownRatio(curve.mean), text: curve => percentOf(shownRatio(curve.mean)), best: curve => curve === leader },
    ...bounds.length > 0 ? [{ head: "within", note: `of ${boundName}`, key: worst, text: curve => worst(curve) == null ? "–" : percentOf(worst(curve)) }] : [],
    ...sizes.map(({ blocks, bytes: size }) => ({
      head: whole(blocks),
      note: bytes(size),
      highFirst,
      key: curve => shownRatio(curve.bySize.get(blocks)?.miss_ratio),
      text: curve => percentOf(shownRatio(curve.bySize.get(blocks)?.miss_ratio)),
      title: curve => {
        const beyond = over(curve.bySize.get(blocks)?.miss_ratio, blocks);
        return beyond == null || curve.clairvoyant ? null : `within ${percentOf(beyond, 2)} points of ${boundName}`;
      },
      best: curve => isBest(curve, blocks),
    })),
  ], curves, 1);

  const rows = curves.flatMap(curve => sizes.filter(size => curve.bySize.has(size.blocks))
    .map(size => ({ curve, ...curve.bySize.get(size.blocks) })));
  const number = (head, field, text = whole, note = null) => ({ head, note, key: row => row[field], text: row => text(row[field]) });
  const has = field => rows.some(row => row[field] != null);
  sortable($("figures"), [
    { head: "Policy", isText: true, key: row => row.curve.policy, text: row => row.curve.policy },
    number("Size", "size_blocks", whole, "blocks"),
    number("Size", "size_bytes", bytes),
    number("References", "references"),
    number("Hits", "hits"),
    number("Hit ratio", "hit_ratio", ratio => percentOf(ratio, 2), "%"),
    { ...number("Miss ratio", "miss_ratio", ratio => percentOf(ratio, 2), "%"), best: row => isBest(row.curve, row.size_blocks) },
    ...has("error") ? [number("Error", "error", error => error == null ? "–" : `± ${percentOf(error, 2)}`, "points")] : [],
    ...bounds.length > 0 ? [{
      head: `Over ${boundName}`, note: "points",
      key: row => over(row.miss_ratio, row.size_blocks),
      text: row => percentOf(over(row.miss_ratio, row.size_blocks), 2),
    }] : [],
    number("Missed", "bytes_missed", bytes),
    ...has("evictions") ? [number("Evictions", "evictions")] : [],
    ...has("cpu_s") ? [number("CPU", "cpu_s", s => s == null ? "–" : s.toFixed(3), "s")] : [],
  ], rows, 1);
}

// ---- execution time ---------------------------------------------------------------------------------------------

function timedSection() {
  const timed = report.timed;
  if (timed == null || timed.curves.length === 0) return;
  $("timed").hidden = false;
  // Where time was simulated, it leads.
  $("curves").before($("timed"));
  $("timed-about").textContent = `On ${timed.device}${timed.levels.map((level, at) => `; level ${at + 1}: ${level}`).join("")}; read-ahead ${timed.readahead}, scheduler ${timed.scheduler}. A heading sorts by its column.`;
  const drawn = timed.curves.map(curve => ({ ...curve, points: curve.points.slice().sort((a, b) => a.size_blocks - b.size_blocks) }));
  const measure = timed.is_open
    ? { of: point => (point.latency_mean_us ?? 0) / 1000, name: "Mean latency", unit: "ms" }
    : { of: point => point.execution_s, name: "Execution time", unit: "s" };
  $("timed-title").textContent = measure.name;
  const meanTime = ({ points }) => points.reduce((sum, point) => sum + measure.of(point), 0) / points.length;
  dress(drawn, drawn.slice().sort((a, b) => meanTime(a) - meanTime(b)));
  $("timed-legend").append(...drawn.map(curve => element("span", { style: "display: inline-flex; align-items: center; gap: 6px" },
    swatch(curve.colour, curve.dash, curve.width), curve.policy)));
  const series = dots => [{}, ...drawn.map(curve => ({
    label: curve.policy, stroke: colour(curve.colour), width: curve.width, dash: curve.dash,
    points: { show: dots, size: 5, fill: colour(curve.colour), width: 0 },
  }))];

  const times = drawn.flatMap(({ points }) => points.map(measure.of));
  const [shortest, longest] = [Math.min(...times), Math.max(...times)];
  // Where the program waits for little, all times are nearly the same: a cut axis shows what differs.
  const cut = shortest > 0.8 * longest && shortest < longest;
  $("time-help").hidden = !cut;
  const bySize = (host, { of, name, unit }, isCut) => plot(host, `${name} against cache size`, 300, () => ({
    data: uPlot.join(drawn.map(({ points }) => [points.map(point => point.size_bytes), points.map(of)])),
    scales: {
      x: { time: false, range: (_, min, max) => around(min, max) },
      y: { range: (_, min, max) => isCut ? [min - (max - min) / 10, max + (max - min) / 10] : fromZero(max) },
    },
    axes: [
      bottom("Cache size", { incrs: Array.from({ length: 60 }, (_, k) => 2 ** k), values: (_, ticks) => ticks.map(tick => tick == null ? "" : bytes(tick)) }),
      left(`${name} (${unit})`, { values: (_, ticks) => ticks.map(count) }),
    ],
    series: series(true),
    cursor: { x: false, y: false },
  }));
  bySize($("time-plot"), measure, cut);
  bySize($("p99-plot"), { of: point => (point.latency_p99_us ?? 0) / 1000, name: "p99", unit: "ms" }, false);

  const sizes = [...new Map(drawn.flatMap(curve => curve.points).map(point => [point.size_blocks, point])).values()]
    .sort((a, b) => a.size_blocks - b.size_blocks);
  const chosen = $("sequence-size");
  chosen.append(...sizes.map(point => element("option", { value: point.size_blocks }, bytes(point.size_bytes))));
  chosen.selectedIndex = Math.floor(sizes.length / 2);
  // Steps: a share holds up to the next length. A curve begins at 0 below its shortest sequence.
  const steps = curve => {
    const point = curve.points.find(point => point.size_blocks === Number(chosen.value));
    const known = point?.sequences ?? [];
    return [[1, ...known.map(([length]) => length).filter(length => length > 1)],
      [known.find(([length]) => length === 1)?.[1] ?? 0, ...known.filter(([length]) => length > 1).map(([, share]) => share)]];
  };
  const sequences = plot($("sequence-plot"), "Share of blocks by length of their sequence", 300, () => ({
    data: uPlot.join(drawn.map(curve => {
      const [lengths, shares] = steps(curve);
      return [lengths, shares.map(share => 100 * share)];
    })),
    scales: { x: { time: false, distr: 3, log: 2, range: (_, min, max) => around(min, max) }, y: { range: () => [0, 100] } },
    axes: [
      bottom("Length of the sequence (blocks)", { values: (_, ticks) => ticks.map(tick => tick == null ? "" : count(tick)) }),
      left("Share of the blocks read (%)", { values: (_, ticks) => ticks.map(count) }),
    ],
    series: series(false).map((one, i) => i === 0 ? one : { ...one, paths: uPlot.paths.stepped({ align: 1 }), spanGaps: true }),
    cursor: { x: false, y: false },
  }));
  chosen.addEventListener("change", () => sequences.draw());

  const rows = drawn.flatMap(curve => curve.points.map(point => ({ policy: curve.policy, ...point })));
  const least = new Map(sizes.map(({ size_blocks: size }) =>
    [size, Math.min(...rows.filter(row => row.size_blocks === size).map(measure.of))]));
  const number = (head, field, text = whole, note = null) => ({ head, note, key: row => row[field], text: row => text(row[field]) });
  const precise = s => s.toFixed(3);
  sortable($("timed-figures"), [
    { head: "Policy", isText: true, key: row => row.policy, text: row => row.policy },
    number("Size", "size_bytes", bytes),
    { ...timed.is_open ? number("Mean", "latency_mean_us", latency) : number("Time", "execution_s", precise, "s"),
      best: row => drawn.length > 1 && measure.of(row) === least.get(row.size_blocks) },
    number("p50", "latency_p50_us", latency),
    number("p99", "latency_p99_us", latency),
    number("Device", "device_busy_s", precise, "s"),
    number("Requests", "device_requests"),
    number("Mean request", "mean_request_bytes", bytes),
    number("Mean sequence", "mean_sequence_blocks", blocks => blocks == null ? "–" : blocks.toFixed(1), "blocks"),
    number("Hit ratio", "hit_ratio", ratio => percentOf(ratio, 2), "%"),
    number("Prefetches used", "prefetch_accuracy", percentOf, "%"),
    ...timed.levels.flatMap((_, at) => ["hits", "stores"].map(what =>
      ({ head: `Level ${at + 1}`, note: what, key: row => row.levels[at][what], text: row => whole(row.levels[at][what]) }))),
    ...timed.levels.length > 0 ? [number("Device reads", "device_reads")] : [],
  ], rows, 1);

  const programs = rows.flatMap(({ policy, size_bytes: size, programs }) => programs.map(program => ({ policy, size_bytes: size, ...program })));
  const ahead = programs.some(program => program.prefetch_issued > 0);
  if (!ahead && !rows.some(row => row.programs.length > 1)) return;
  $("timed-programs").hidden = false;
  sortable($("timed-programs").firstChild, [
    { head: "Policy", isText: true, key: row => row.policy, text: row => row.policy },
    number("Size", "size_bytes", bytes),
    { head: "Program", isText: true, key: row => row.name, text: row => row.name },
    number("Time", "execution_s", precise, "s"),
    number("Waiting", "waited_s", precise, "s"),
    ...ahead ? [
      number("Prefetches", "prefetch_issued"),
      number("Used", "prefetch_accuracy", percentOf, "%"),
      number("Late", "prefetch_lateness", percentOf, "% of used"),
      number("Wasted", "prefetch_waste", percentOf, "%"),
    ] : [],
  ], programs, 1);
}

// ---- time-space map ---------------------------------------------------------------------------------------------

function mapImage(map, most) {
  const rgb = ["--low", "--mid", "--high"].map(name => [1, 3, 5].map(i => parseInt(colour(name).slice(i, i + 2), 16)));
  const image = new ImageData(map.columns, map.rows);
  map.counts.forEach((count, i) => {
    if (count === 0) return;
    const heat = most > 1 ? 2 * Math.log(count) / Math.log(most) : 0;
    const stop = Math.min(1, Math.floor(heat));
    const at = 4 * ((map.rows - 1 - Math.floor(i / map.columns)) * map.columns + i % map.columns);
    for (let c = 0; c < 3; c++) image.data[at + c] = rgb[stop][c] + (heat - stop) * (rgb[stop + 1][c] - rgb[stop][c]);
    image.data[at + 3] = 255;
  });
  const canvas = element("canvas", { width: map.columns, height: map.rows });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function mapSection() {
  const map = report.map;
  if (map == null || map.counts.length !== map.columns * map.rows || !map.counts.some(count => count > 0)) return;
  $("map").hidden = false;
  const most = map.counts.reduce((a, b) => Math.max(a, b), 0);
  $("map-key-low").textContent = "1";
  $("map-key-high").textContent = `${whole(most)} references in a cell (log scale)`;

  const [[first, last], [low, high]] = [map.references, map.blocks];
  const [width, height] = [(last - first) / map.columns, (high - low) / map.rows];
  const spot = { column: 0, row: 0 };
  const volumes = new Set(map.addresses.map(([volume]) => volume)).size;
  const address = row => {
    const [volume, at] = map.addresses[Math.min(map.addresses.length - 1, Math.max(0, row))];
    return volumes > 1 ? `${whole(volume)}: ${bytes(at)}` : bytes(at);
  };
  const readout = () => {
    const [x, y] = [first + spot.column * width, low + spot.row * height];
    const span = (from, size) => {
      const to = Math.max(Math.floor(from), Math.ceil(from + size) - 1);
      return to > Math.floor(from) ? `${whole(Math.floor(from))} to ${whole(to)}` : whole(Math.floor(from));
    };
    const place = map.addresses.length > map.rows ? ` (${address(spot.row)} to ${address(spot.row + 1)})` : "";
    $("map-readout").textContent = `References ${span(x, width)}, blocks ${span(y, height)}${place}: ${whole(map.counts[spot.row * map.columns + spot.column])} in the cell`;
  };
  const within = (value, cells) => Math.min(cells - 1, Math.max(0, Math.floor(value)));

  const drawn = plot($("map-plot"), `Density of references over virtual time and block number, ${map.columns} by ${map.rows} cells`, 420, () => {
    const image = mapImage(map, most);
    return {
      data: [[first, last], [low, high]],
      scales: { x: { time: false, range: (_, min, max) => [min, max] }, y: { range: () => [low, high] } },
      axes: [
        virtualTime(),
        left("Block, by address", { values: (_, ticks) => ticks.map(count) }),
        ...map.addresses.length > map.rows ? [left(volumes > 1 ? "Volume: address" : "Address", {
          side: 1, scale: "y", grid: { show: false }, values: (_, ticks) => ticks.map(tick => address(Math.round((tick - low) / height))),
        })] : [],
      ],
      series: [{}, { points: { show: false }, width: 0 }],
      hooks: {
        drawClear: [chart => {
          const { ctx, bbox } = chart;
          const [x0, x1] = [first, last].map(value => chart.valToPos(value, "x", true));
          const [y0, y1] = [low, high].map(value => chart.valToPos(value, "y", true));
          ctx.save();
          ctx.beginPath();
          ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
          ctx.clip();
          ctx.imageSmoothingEnabled = x1 - x0 < map.columns || y0 - y1 < map.rows;
          ctx.drawImage(image, x0, y1, x1 - x0, y0 - y1);
          ctx.restore();
        }],
        setCursor: [chart => {
          if (!(chart.cursor.left >= 0)) return;
          spot.column = within((chart.posToVal(chart.cursor.left, "x") - first) / width, map.columns);
          spot.row = within((chart.posToVal(chart.cursor.top, "y") - low) / height, map.rows);
          readout();
        }],
      },
    };
  });
  $("map-plot").dataset.cells = map.counts.filter(count => count > 0).length;
  $("map-readout").textContent = "Point at the map, or use the arrow keys, to read a cell.";
  $("map-plot").addEventListener("keydown", event => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (step == null) return;
    event.preventDefault();
    const chart = drawn.chart;
    const column = within(spot.column + step[0], map.columns);
    const row = within(spot.row + step[1], map.rows);
    chart.setCursor({
      left: chart.valToPos(first + (column + 0.5) * width, "x"),
      top: chart.valToPos(low + (row + 0.5) * height, "y"),
    });
  });
}

// ---- inside the policies ----------------------------------------------------------------------------------------

function internalsSection() {
  const charts = report.internals
    .map(chart => ({ ...chart, series: chart.series.filter(series => series.samples.length > 0) }))
    .filter(chart => chart.series.length > 0 && chart.size_blocks > 0);
  $("internals").hidden = charts.length === 0;
  const folded = $("internals").querySelector("details");
  folded.addEventListener("toggle", () => {
    if (folded.open && $("internals-grid").childElementCount === 0) internalsPlots(charts);
  });
}

function internalsPlots(charts) {
  for (const { policy, size_blocks: size, series } of charts) {
    const host = element("div", { class: "plot", tabindex: 0, role: "group", "data-name": `inside-${policy}`, "aria-label": `${policy} at ${whole(size)} blocks; arrow keys read values` });
    const values = series.map(() => element("span", {}));
    $("internals-grid").append(element("figure", {},
      element("h3", {}, `${policy}, ${whole(size)} blocks`),
      element("dl", {}, ...series.flatMap(({ name, about }, i) =>
        [element("dt", {}, swatch(`--c${i % 6}`, null, 2), name, values[i]), element("dd", {}, about)])),
      host));
    const tables = series.map(({ samples }) => [samples.map(([at]) => at), samples.map(([, blocks]) => blocks / size)]);
    const data = uPlot.join(tables);
    const percent = tables.every(([, shares]) => shares.every(share => share <= 1));
    const value = share => share == null ? "" : percent ? `${percentOf(share)} %` : `${share.toFixed(2)} ×`;
    overTime(host, `${series.map(({ name }) => name).join(", ")} of ${policy} over virtual time`, 220, () => ({
      data,
      scales: { x: { time: false }, y: { range: (_, min, max) => fromZero(max) } },
      axes: [
        virtualTime(),
        left(percent ? "Share of the cache (%)" : "Multiple of the cache size", { values: (_, ticks) => ticks.map(tick => count(percent ? 100 * tick : tick)) }),
      ],
      series: [{}, ...series.map(({ name }, i) => ({ label: name, stroke: colour(`--c${i % 6}`), width: 1.25, points: { show: false } }))],
      cursor: { y: false },
    }), at => {
      if (at != null) values.forEach((span, i) => { span.textContent = value(data[i + 1][at]); });
    });
  }
  fitPlots();
}

// ---- words ------------------------------------------------------------------------------------------------------

function verdictSection() {
  const verdict = report.verdict;
  if (verdict == null) return;
  $("verdict").hidden = false;
  $("verdict-headline").textContent = verdict.headline;
  $("verdict-facts").append(...verdict.facts.flatMap(([about, sentence]) => [element("dt", {}, about), element("dd", {}, sentence)]));
  $("verdict-next").hidden = !verdict.next;
  $("verdict-next").querySelector("code").textContent = verdict.next;
}

function servedSection() {
  const served = report.served;
  $("served").hidden = served.length === 0;
  if (served.length === 0) return;
  const longest = Math.max(...served.map(row => row.elapsed_s));
  const least = field => Math.min(...served.map(row => row[field]));
  const best = field => row => served.length > 1 && row[field] === least(field);
  sortable($("served-figures"), [
    { head: "Policy", isText: true, key: row => row.policy, text: row => row.policy },
    { head: "Hit ratio", note: "%", highFirst: true, key: row => row.hit_ratio, text: row => percentOf(row.hit_ratio, 2),
      best: row => row.hit_ratio === Math.max(...served.map(row => row.hit_ratio)) },
    { head: "p50", key: row => row.p50_us, text: row => latency(row.p50_us), best: best("p50_us") },
    { head: "p99", key: row => row.p99_us, text: row => latency(row.p99_us), best: best("p99_us") },
    { head: "Device reads", key: row => row.device_reads, text: row => whole(row.device_reads), best: best("device_reads") },
    { head: "Elapsed", note: "s", key: row => row.elapsed_s, text: row => row.elapsed_s.toFixed(2), best: best("elapsed_s") },
    { head: "", key: row => row.elapsed_s, text: row => element("span", { class: "bar", style: `width: ${Math.round(220 * row.elapsed_s / longest)}px` }) },
  ], served, 5);
}

function headSection() {
  const trace = report.trace;
  document.title = report.title || document.title;
  $("title").textContent = report.title || "Cache replacement report";
  const share = part => trace.requests > 0 ? `${whole(part)} (${percentOf(part / trace.requests)} %)` : whole(part);
  const facts = [
    ["Trace", trace.name],
    ["Format", trace.format],
    ["References", whole(trace.references)],
    ["Distinct blocks", `${whole(trace.distinct_blocks)} (${bytes(trace.distinct_blocks * trace.block_bytes)})`],
    ["Block", bytes(trace.block_bytes)],
    ["Requests", whole(trace.requests)],
    ["Reads", share(trace.reads)],
    ["Writes", share(trace.writes)],
    ["Duration", trace.duration_s == null ? "" : duration(trace.duration_s)],
  ];
  if (report.traces == null) $("trace").append(...facts.filter(([, value]) => value).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  $("command").hidden = !report.command;
  $("command").firstElementChild.textContent = report.command;
  $("notes").hidden = report.notes.length === 0;
  $("notes").querySelector("ul").append(...report.notes.map(note => element("li", {}, note)));
  $("generator").textContent = report.generator ? `Generated by ${report.generator}.` : "";
}

function jsonButtons() {
  $("download").href = URL.createObjectURL(new Blob([source], { type: "application/json" }));
  $("copy").hidden = navigator.clipboard == null;
  $("copy").addEventListener("click", async () => {
    const copied = await navigator.clipboard.writeText(source).then(() => true, () => false);
    $("copied").textContent = copied ? "Copied." : "The browser does not allow it.";
  });
}

onPlot = offerSvg;
headSection();
verdictSection();
servedSection();
curvesSection();
resultsSection();
timedSection();
tracesSection();
levelsSection();
mapSection();
internalsSection();
jsonButtons();
if (location.hash === "#svg") leaveCharts();
