// Uses the page as a reader would, and leaves what it saw in `drive`.
const drive = {};
{
  const key = (id, name) => document.querySelector(id).dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  const choose = value => document.querySelector(`#controls input[value="${value}"]`).click();
  const first = selector => document.querySelector(selector);

  key("#curve-plot", "ArrowRight");
  drive.caption = first("#curve-at").textContent;

  drive.ratios = [first("#curves-title").textContent];
  drive.axes = ["scale", "unit"].map(name => first(`#controls input[name="${name}"]:checked`).value);
  drive.clipped = [curveChart.chart.scales.x.min, curveChart.chart.scales.x.max];
  for (const value of ["miss", "log", "blocks", "linear", "bytes", "hit", "miss"]) choose(value);
  drive.ratios.push(first("#curves-title").textContent);

  const button = first("#curve-legend tbody button");
  button.focus();
  button.click();
  button.blur();
  drive.pressed = button.getAttribute("aria-pressed");

  const heads = "#matrix thead th:nth-child(8)";
  drive.sorted = [];
  for (let i = 0; i < 2; i++) {
    first(`${heads} button`).click();
    drive.sorted.push(first(heads).getAttribute("aria-sort"), first("#matrix tbody td").textContent);
  }
  first("#results details").open = true;
  first("#internals details").open = true;
  first("#internals details").dispatchEvent(new Event("toggle"));

  for (const name of ["ArrowUp", "ArrowRight"]) key("#map-plot", name);
  const zoom = () => [curveChart.chart.scales.x.min, curveChart.chart.scales.x.max];
  let full;
  // The charts settle in microtasks.
  Promise.resolve().then(() => {
    drive.cell = first("#map-readout").textContent;
    key("#internals-grid .plot", "ArrowRight");
    // Between two sizes that were replayed.
    curveChart.chart.setCursor({ left: curveChart.chart.valToPos(10e6, "x"), top: 10 });
  }).then(() => {
    drive.stack = first("#internals-grid dt span").textContent;
    drive.between = [first("#curve-at").textContent, ...[...document.querySelectorAll("#curve-legend tbody tr")]
      .map(row => row.textContent).filter(text => text.startsWith("lru") || text.startsWith("arc"))];
    drive.colours = Object.fromEntries(curves.map(curve => [curve.policy, curve.colour]));
    const arc = curves.find(curve => curve.policy === "arc");
    const y = curveChart.chart.valToPos(100 * arc.bySize.get(3000).miss_ratio, "y");
    curveChart.chart.setCursor({ left: curveChart.chart.valToPos(3000 * 4096, "x"), top: y });
  }).then(() => {
    drive.pointed = [pointed?.policy, first("#curve-legend tr.pointed")?.dataset.policy];
    curveChart.chart.setCursor({ left: -10, top: -10 });
  }).then(() => {
    drive.unpointed = pointed;
    full = zoom();
    curveChart.chart.batch(() => curveChart.chart.setScale("x", { min: full[1] / 4, max: full[1] / 2 }));
    drive.zoomed = zoom().map(edge => edge / full[1]);
    first("#unzoom").click();
  }).then(() => { drive.unzoomed = zoom().every((edge, i) => edge === full[i]); });
}
window.drive = drive;
