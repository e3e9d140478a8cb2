// ---- cache levels -----------------------------------------------------------------------------------------------

function sum(numbers) {
  return numbers.reduce((all, number) => all + number, 0);
}

// Columns of the same length become one: `combine` gets what they have at each place.
function each(columns, combine) {
  return columns[0].map((_, at) => combine(columns.map(column => column[at])));
}

function levelsSection() {
  const levels = report.levels;
  if (levels == null || levels.schemes.length === 0) return;
  $("kind").textContent = "What each scheme for several cache levels would have done";
  $("levels").hidden = false;
  const { size_bytes: sizes, schemes } = levels;
  const clients = schemes[0].clients.length;
  const several = sizes.length > 1;
  $("levels-about").textContent = `${several ? "The levels have" : "The level has"} ${sizes.map(bytes).join(", ")}.` +
    (clients > 0 ? ` Each of ${whole(clients)} clients has levels of its own, and all share the last one.` : "") +
    " Hits, misses and demotions are in percent of the references." +
    (several ? " Fetched: blocks that came from levels below the first. Duplicated: memory that further copies of the same blocks take at the end" +
      (clients > 0 ? "; copies at levels of different clients count, too." : "; ulc and unilru keep each block at one level.") : "") +
    " A heading sorts by its column.";

  const share = (row, number) => row.figures.references > 0 ? number / row.figures.references : null;
  const percent = (head, note, get) => ({ head, note, key: row => share(row, get(row.figures)), text: row => percentOf(share(row, get(row.figures)), 2) });
  const timed = schemes.some(({ figures }) => figures.mean_ms != null);
  const least = Math.min(...schemes.map(({ figures }) => figures.mean_ms ?? Infinity));
  const name = { head: "Scheme", isText: true, key: row => row.scheme, text: row => row.scheme };
  const shares = [
    ...sizes.map((size, at) => percent(`Level ${at + 1}`, `${bytes(size)}, %`, figures => figures.hits[at])),
    percent("Misses", "%", figures => figures.misses),
    ...sizes.slice(1).map((_, at) => percent(`Demoted ${at + 1}–${at + 2}`, "%", figures => figures.demotions[at])),
  ];
  const mean = {
    head: "Mean time", note: "ms", key: row => row.figures.mean_ms,
    text: ({ figures }) => figures.mean_ms == null ? "–" : figures.mean_ms.toFixed(3),
  };
  const all = [
    name,
    ...shares,
    ...several ? [
      { head: "Demoted", key: row => row.figures.demoted_bytes, text: row => bytes(row.figures.demoted_bytes) },
      { head: "Fetched", key: row => row.figures.fetched_bytes, text: row => bytes(row.figures.fetched_bytes) },
      { head: "Duplicated", key: row => row.duplicated_bytes, text: row => bytes(row.duplicated_bytes) },
    ] : [],
    ...timed ? [{ ...mean, best: row => schemes.length > 1 && row.figures.mean_ms === least }] : [],
    { head: "CPU", note: "s", key: row => row.cpu_s, text: row => row.cpu_s.toFixed(3) },
  ];
  sortable($("levels-figures"), all, schemes, timed ? all.length - 2 : sizes.length + 1);

  $("levels-clients").hidden = clients === 0;
  const rows = schemes.flatMap(({ scheme, clients }) => clients.map(([client, figures]) => ({ scheme, client, figures })));
  sortable($("levels-clients").querySelector("table"), [
    { head: "Client", isText: true, key: row => row.client, text: row => row.client },
    name,
    { head: "References", key: row => row.figures.references, text: row => whole(row.figures.references) },
    ...shares,
    ...timed ? [mean] : [],
  ], rows, 0);
  if (schemes.every(({ intervals }) => intervals.end.length > 0)) levelsOverTime(sizes, schemes);
}

// What is drawn for each scheme: `parts` in the order of the legend, each with what it is as a whole and in each interval.
function levelsMeasures(sizes) {
  const block = report.trace.block_bytes;
  const references = intervals => each([...intervals.hits, intervals.misses], sum);
  const shareOf = (counts, { intervals }) => each([counts, references(intervals)], ([part, whole]) => 100 * part / whole);
  const percent = value => `${value.toFixed(1)} %`;
  const colours = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--ink", "--dim"];
  const part = (name, colour, scheme, total, counts) =>
    ({ name, colour, total: 100 * total / Math.max(1, scheme.figures.references), values: shareOf(counts, scheme) });
  const hits = {
    title: "Where blocks are found",
    about: "Hits of each level, and misses, which no level hits.",
    axis: "References (%)",
    stacked: true,
    text: percent,
    parts: scheme => [
      ...sizes.map((_, at) => part(`level ${at + 1}`, colours[at], scheme, scheme.figures.hits[at], scheme.intervals.hits[at])),
      part("misses", "--grey", scheme, scheme.figures.misses, scheme.intervals.misses),
    ],
  };
  if (sizes.length === 1) return [hits];
  return [hits, {
    title: "Demotions",
    about: "Blocks that went from a level to the next lower one, in percent of the references.",
    axis: "References (%)",
    text: percent,
    parts: scheme => sizes.slice(1).map((_, at) =>
      part(`from level ${at + 1} to ${at + 2}`, colours[at], scheme, scheme.figures.demotions[at], scheme.intervals.demotions[at])),
  }, {
    title: "Bytes moved between levels",
    about: "Blocks that were demoted, and blocks that were fetched from levels below the first, in each interval.",
    axis: "Bytes in an interval",
    text: bytes,
    inBytes: true,
    parts: ({ figures, intervals }) => [
      { name: "demoted", colour: "--c1", total: figures.demoted_bytes, values: each(intervals.demotions, counts => block * sum(counts)) },
      { name: "fetched", colour: "--c0", total: figures.fetched_bytes, values: each(intervals.hits.slice(1), counts => block * sum(counts)) },
    ],
  }, {
    title: "Duplicated blocks",
    about: "Memory that further copies of the same blocks take, at the end of each interval.",
    axis: "Bytes",
    text: bytes,
    inBytes: true,
    parts: ({ duplicated_bytes: total, intervals }) => intervals.duplicated_bytes.length === 0 ? []
      : [{ name: "duplicated", colour: "--c1", total, values: intervals.duplicated_bytes }],
  }];
}

function levelsOverTime(sizes, schemes) {
  $("levels-time").hidden = false;
  const { start, end } = schemes[0].intervals;
  const times = [start, ...end];
  $("levels-time-about").textContent = `In ${whole(end.length)} equal intervals of the references` +
    (start > 0 ? `, without the first ${whole(start)}, which warm the caches.` : ".") +
    " Figures beside names are those of all intervals, until you point at one in a plot, or go there with the arrow keys. Drag to zoom; double-click to see everything again.";
  const place = at => {
    $("levels-readout").textContent = at == null ? `References ${whole(start)} to ${whole(end.at(-1) - 1)}`
      : `References ${whole(times[at])} to ${whole(times[at + 1] - 1)}`;
  };
  place(null);

  for (const measure of levelsMeasures(sizes)) {
    const all = schemes.map(scheme => ({ scheme: scheme.scheme, parts: measure.parts(scheme) }));
    const highest = ({ parts }) => Math.max(...parts.flatMap(({ values }) => values));
    const drawn = all.filter(one => highest(one) > 0);
    // Nothing of that kind happened, or it was not counted.
    if (drawn.length === 0) continue;
    const none = all.filter(one => !drawn.includes(one)).map(({ scheme }) => scheme);
    const most = Math.max(...drawn.map(highest));
    const grid = element("div", { class: "grid small" });
    $("levels-time").append(
      element("h3", {}, measure.title),
      element("p", { class: "about" }, measure.about + (none.length > 0 ? ` None with ${none.join(", ")}.` : "")),
      grid,
    );
    for (const { scheme, parts } of drawn) levelsPlot(grid, measure, scheme, parts, times, most, place);
  }
  fitPlots();
}

function levelsPlot(grid, measure, scheme, parts, times, most, place) {
  const shown = parts.map(() => element("span", {}));
  const host = element("div", { class: "plot", tabindex: 0, role: "group", "data-name": `${measure.title}-${scheme}`, "aria-label": `${measure.title}, ${scheme}; arrow keys read values` });
  grid.append(element("figure", {},
    element("h4", {}, scheme),
    element("div", { class: "row" }, ...parts.map(({ name, colour }, i) => element("span", {}, swatch(colour, null, measure.stacked ? 10 : 2), `${name} `, shown[i]))),
    host));
  const show = at => {
    const interval = at == null ? null : Math.min(at, times.length - 2);
    place(interval);
    parts.forEach(({ total, values }, i) => { shown[i].textContent = measure.text(interval == null ? total : values[interval]); });
  };
  show(null);
  // Each value holds from the beginning of its interval to the end. What is stacked reaches down to 0, so the highest comes first.
  const drawn = parts.map(({ name, colour, values }, i) =>
    ({ name, colour, values: measure.stacked ? each(parts.slice(0, i + 1).map(part => part.values), sum) : values }));
  if (measure.stacked) drawn.reverse();
  overTime(host, `${measure.title} of ${scheme} over virtual time`, 190, () => ({
    data: [times, ...drawn.map(({ values }) => [...values, values.at(-1)])],
    scales: { x: { time: false }, y: { range: () => measure.stacked ? [0, 100] : fromZero(most) } },
    axes: [
      virtualTime(),
      left(measure.axis, {
        ...measure.inBytes && { incrs: Array.from({ length: 60 }, (_, k) => 2 ** k) },
        values: (_, ticks) => ticks.map(measure.inBytes ? bytes : count),
      }),
    ],
    series: [{}, ...drawn.map(({ name, colour: tone }) => ({
      label: name,
      stroke: colour(tone),
      width: measure.stacked ? 0 : 1.25,
      ...measure.stacked && { fill: colour(tone) },
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
    }))],
    cursor: { y: false, sync: { key: "levels" } },
  }), show);
}
