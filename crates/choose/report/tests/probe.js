// Adds what it finds to the document: what the page says it drew, and what canvases and layout show.
addEventListener("load", () => {
  const plots = [...document.querySelectorAll(".plot")].filter(plot => plot.querySelector("canvas")).map(plot => {
    const canvas = plot.querySelector("canvas");
    const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return { ...plot.dataset, width: canvas.width, height: canvas.height, label: canvas.getAttribute("aria-label"),
      painted: pixels.filter(pixel => pixel !== 0).length, colours: new Set(pixels).size };
  });
  const found = {
    drive: window.drive,
    problems: [...document.querySelectorAll(".problem")].map(problem => problem.textContent),
    plots,
    verdict: document.getElementById("verdict").hidden ? null : document.getElementById("verdict").innerText,
    served: [...document.querySelectorAll("#served-figures tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
    abouts: [...document.querySelectorAll("#internals dd")].map(about => about.textContent),
    legend: document.querySelectorAll("#curve-legend tbody tr").length,
    matrix: document.querySelectorAll("#matrix tbody tr").length,
    columns: document.querySelectorAll("#matrix thead th").length,
    marked: document.querySelectorAll("#matrix td.best").length,
    figures: document.querySelectorAll("#figures tbody tr").length,
    timed_cells: [...document.querySelectorAll("#timed-figures tbody tr:first-child td, #timed-figures tbody tr:first-child th")].map(cell => cell.textContent),
    programs: [...document.querySelectorAll("#timed-programs tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
    levels: [...document.querySelectorAll("#levels-figures tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
    level_clients: [...document.querySelectorAll("#levels-clients tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
    level_legends: [...document.querySelectorAll("#levels-time figure")].map(figure =>
      [figure.querySelector("h4"), ...figure.querySelectorAll(".row > span")].map(text => text.textContent)),
    level_readout: document.getElementById("levels-readout").textContent,
    sections: [...document.querySelectorAll("section")].filter(section => !section.hidden).map(section => section.id),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    paper: getComputedStyle(document.documentElement).backgroundColor,
    foreign: document.querySelectorAll("img, iframe, link, object, script[src]").length,
    scripts: document.scripts.length,
    title: document.getElementById("title").textContent,
    download: document.getElementById("download").href,
  };
  const node = document.createElement("pre");
  node.id = "probe";
  node.hidden = true;
  node.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(node);
});
