// ---- several traces ---------------------------------------------------------------------------------------------

function tracesSection() {
  const traces = report.traces;
  if (traces == null || traces.panels.length === 0) return;
  $("kind").textContent = `What each replacement policy would have done in ${whole(traces.panels.length)} traces`;
  $("traces").hidden = false;
  // One list of policies, so that each has the same colour in all charts: the best are those with the fewest misses on average.
  const policies = new Map();
  for (const { policy, clairvoyant, points } of traces.panels.flatMap(panel => panel.curves)) {
    const one = policies.get(policy) ?? { policy, clairvoyant, misses: [] };
    one.misses.push(...points.map(point => point.miss_ratio));
    policies.set(policy, one);
  }
  const dressed = [...policies.values()];
  for (const one of dressed) one.mean = sum(one.misses) / one.misses.length;
  dress(dressed, dressed.filter(one => !one.clairvoyant).sort((a, b) => a.mean - b.mean));
  $("traces-legend").append(...dressed.slice().sort((a, b) => a.mean - b.mean).map(one =>
    element("span", { class: "key" }, swatch(one.colour, one.dash, one.width), one.policy)));

  reductionsPlot(traces, policies);
  traces.panels.forEach((panel, at) => panelPlot(panel, at, policies));
  fitPlots();
}

function panelPlot({ trace, curves }, at, policies) {
  const host = element("div", { class: "plot", role: "group", "aria-label": `Hit ratio curves of ${trace.name}`, "data-name": `trace-${at + 1}-${trace.name}` });
  $("traces-grid").append(element("figure", {},
    element("h3", {}, trace.name),
    element("p", { class: "about" }, `${whole(trace.references)} references to ${whole(trace.distinct_blocks)} blocks (${bytes(trace.distinct_blocks * trace.block_bytes)})`),
    host));
  const drawn = curves.map(curve => ({ ...curve, ...policies.get(curve.policy) })).sort((a, b) => a.rank - b.rank);
  plot(host, `Hit ratio against cache size in ${trace.name}`, 300, () => ({
    data: uPlot.join(drawn.map(({ points }) => {
      const ascending = points.slice().sort((a, b) => a.size_blocks - b.size_blocks);
      return [ascending.map(point => point.size_bytes), ascending.map(point => 100 * point.hit_ratio)];
    })),
    scales: {
      x: { time: false, range: (_, min, max) => around(min, max) },
      y: { range: (_, min, max) => [0, Math.min(100, Math.max(1, max * 1.03))] },
    },
    axes: [
      bottom("Cache size", { incrs: Array.from({ length: 60 }, (_, k) => 2 ** k), values: (_, ticks) => ticks.map(tick => tick == null ? "" : bytes(tick)) }),
      left("Hit ratio (%)", { values: (_, ticks) => ticks.map(count) }),
    ],
    series: [{}, ...drawn.map(curve => ({
      label: curve.policy, stroke: colour(curve.colour), width: curve.width, dash: curve.dash,
      points: { show: true, size: 4.5, fill: colour(curve.colour), width: 0 },
    }))],
    cursor: { x: false, y: false },
    hooks: {
      setCursor: [chart => {
        const size = chart.cursor.idx == null ? null : chart.data[0][chart.cursor.idx];
        if (size == null) return;
        const ratios = drawn.map((curve, i) => [curve.policy, chart.data[i + 1][chart.cursor.idx]]).filter(([, ratio]) => ratio != null);
        $("traces-readout").textContent = `${trace.name} with ${bytes(size)}: ` +
          ratios.sort((a, b) => b[1] - a[1]).map(([policy, ratio]) => `${policy} ${ratio.toFixed(1)} %`).join(", ");
      }],
    },
  }));
}

function reductionsPlot({ panels, reductions }, dressed) {
  if (reductions == null || reductions.policies.length === 0) return;
  $("reductions").hidden = false;
  const { against, cells } = reductions;
  $("reductions-about").textContent = `By how many percent a policy has fewer misses than ${against}, over ${whole(panels.length)} traces at ` +
    `${whole(cells)} sizes in all: each trace and size counts once. Below 0, it has more.`;
  const rows = reductions.policies.slice().sort((a, b) => b.mean - a.mean);
  const shares = rows.flatMap(row => [row.p10, row.p90, row.mean, 0]).map(share => 100 * share);
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  const margin = Math.max(1, (most - least) / 20);
  const step = 26;
  // Thin outlines need more contrast than curves.
  const tones = new Map([...dressed].filter(([, one]) => one.colour !== "--grey").map(([policy, one]) => [policy, one.colour]));
  const range = [least - margin, Math.min(100, most + margin)];
  const host = $("reductions-plot");
  plot(host, `Reduction of the misses of ${against} by ${rows.map(row => row.policy).join(", ")}`, rows.length * step + 60, () => ({
    data: [range, [0, 1]],
    scales: { x: { time: false, range: () => range }, y: { range: () => [-0.5, rows.length - 0.5] } },
    axes: [
      bottom(`Fewer misses than ${against} (%)`, { values: (_, ticks) => ticks.map(count) }),
      // The first policy is at the top.
      left(null, {
        labelSize: 0, grid: { show: false }, ticks: { show: false },
        splits: rows.map((_, i) => i), filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(tick => rows[rows.length - 1 - tick].policy),
        size: (chart, labels) => Math.min(host.clientWidth / 2, 14 + 7 * Math.max(3, ...(labels ?? []).map(text => text.length))),
      }),
    ],
    series: [{}, { points: { show: false }, width: 0 }],
    cursor: { x: false, y: false, drag: { x: false, y: false } },
    hooks: { draw: [chart => boxes(chart, rows, row => colour(tones.get(row.policy) ?? "--dim"))] },
  }));
  host.dataset.boxes = rows.length;
  const figure = (head, note, field, highFirst = true) => ({
    head, note, highFirst, key: row => row[field], text: row => (100 * row[field]).toFixed(1),
    best: row => !row.clairvoyant && rows.length > 1 && row[field] === Math.max(...rows.filter(row => !row.clairvoyant).map(row => row[field])),
  });
  sortable($("reductions-figures"), [
    { head: "Policy", isText: true, key: row => row.policy, text: row => row.policy },
    figure("mean", "%", "mean"), figure("worst", "%", "worst"), figure("p10", "%", "p10"), figure("p25", "%", "p25"),
    figure("median", "%", "median"), figure("p75", "%", "p75"), figure("p90", "%", "p90"),
  ], rows, 1);
}

// A box for each row, and a line at 0.
function boxes(chart, rows, strokeOf) {
  const { ctx, bbox } = chart;
  const x = share => chart.valToPos(100 * share, "x", true);
  const line = (x0, y0, x1, y1) => {
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
  };
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.strokeStyle = colour("--dim");
  line(x(0), bbox.top, x(0), bbox.top + bbox.height);
  rows.forEach((row, i) => {
    const y = chart.valToPos(rows.length - 1 - i, "y", true);
    const half = 7 * devicePixelRatio;
    ctx.strokeStyle = strokeOf(row);
    ctx.lineWidth = 1.5 * devicePixelRatio;
    line(x(row.p10), y, x(row.p25), y);
    line(x(row.p75), y, x(row.p90), y);
    for (const end of [row.p10, row.p90]) line(x(end), y - half / 2, x(end), y + half / 2);
    ctx.beginPath();
    ctx.rect(x(row.p25), y - half, x(row.p75) - x(row.p25), 2 * half);
    ctx.stroke();
    ctx.lineWidth = 3 * devicePixelRatio;
    line(x(row.median), y - half, x(row.median), y + half);
    ctx.beginPath();
    ctx.fillStyle = colour("--ink");
    ctx.arc(x(row.mean), y, 3 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
  });
  ctx.restore();
}
