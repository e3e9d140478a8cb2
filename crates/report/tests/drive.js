// Uses the page as a reader would, and leaves what it saw in `drive`.
const drive = {};
{
  const key = (id, name) => document.querySelector(id).dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  const choose = value => document.querySelector(`#controls input[value="${value}"]`).click();
  const first = selector => document.querySelector(selector);

  key("#curve-plot", "ArrowRight");
  drive.caption = first("#curve-at").textContent;

  drive.ratios = [first("#curves-title").textContent];
  for (const value of ["hit", "linear", "bytes"]) choose(value);
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
  first("details").open = true;

  for (const name of ["ArrowUp", "ArrowRight"]) key("#map-plot", name);
  key("#internals-grid .plot", "ArrowRight");
  const zoom = () => [curveChart.chart.scales.x.min, curveChart.chart.scales.x.max];
  let full;
  // The charts settle in microtasks.
  Promise.resolve().then(() => {
    drive.cell = first("#map-readout").textContent;
    drive.stack = first("#internals-grid .row span span").textContent;
    full = zoom();
    curveChart.chart.batch(() => curveChart.chart.setScale("x", { min: full[1] / 4, max: full[1] / 2 }));
    drive.zoomed = zoom().map(edge => edge / full[1]);
    first("#unzoom").click();
  }).then(() => { drive.unzoomed = zoom().every((edge, i) => edge === full[i]); });
}
window.drive = drive;
