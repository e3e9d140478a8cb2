// Added to the page by the test: once the page is drawn for the second time, adds what it finds to the document.
{
  const wanted = location.hash.slice(1);
  const find = () => {
    const plots = [...document.querySelectorAll(".plot")].filter(plot => plot.querySelector("canvas")).map(plot => {
      const canvas = plot.querySelector("canvas");
      const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
      return { id: plot.id, points: Number(plot.dataset.points), painted: pixels.filter(pixel => pixel !== 0).length };
    });
    const rows = id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => [...row.cells].map(cell => cell.textContent));
    const legends = () => [...document.querySelectorAll(".charts .row")].map(row => row.textContent);
    const ofMinutes = legends();
    document.querySelector("input[name=span][value='1']").click();
    const ofHour = legends();
    document.querySelector("input[name=span][value='0']").click();
    return {
      problems: [...document.querySelectorAll(".problem")].map(problem => problem.textContent),
      state: document.getElementById("state").hidden ? "" : document.getElementById("state").textContent,
      plots,
      now: Object.fromEntries([...document.querySelectorAll("#now div")].map(tile => [...tile.children].map(part => part.textContent))),
      options: [...document.getElementById("export").options].map(option => option.textContent),
      chosen: document.getElementById("export").value,
      exports: rows("exports-table"), levels: rows("levels-table"), policies: rows("policies-table"), tenants: rows("tenants-table"),
      memory: rows("memory-table"),
      legends: ofMinutes, hour: ofHour,
      sections: [...document.querySelectorAll("section")].filter(section => !section.hidden).map(section => section.id),
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      paper: getComputedStyle(document.documentElement).backgroundColor,
      foreign: document.querySelectorAll("img, iframe, link, object, script[src]").length,
      hacked: document.body.dataset.hacked ?? "",
    };
  };
  const drawn = () => Number(document.body.dataset.drawn ?? 0);
  let then = 2;
  const timer = setInterval(() => {
    if (drawn() < then) return;
    if (wanted && document.getElementById("export").value !== decodeURIComponent(wanted)) {
      document.getElementById("export").value = decodeURIComponent(wanted);
      document.getElementById("export").dispatchEvent(new Event("change"));
      then = drawn() + 2;
      return;
    }
    clearInterval(timer);
    const node = document.createElement("pre");
    node.id = "probe";
    node.hidden = true;
    node.textContent = encodeURIComponent(JSON.stringify(find()));
    document.body.append(node);
  }, 100);
}
