// What a reader can do with the page: ask for another limit, for some deployments alone, for one candidate; sort tables.
// Everything it needs is in the page. Without JavaScript all figures stand in the tables.
"use strict";
(() => {
  const text = (id, value) => { document.getElementById(id).textContent = value; };
  const ms = (value) => value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  const holder = document.getElementById("explore-data");
  if (holder) explore(JSON.parse(holder.textContent));
  for (const table of document.querySelectorAll(".scroll > table")) if (table.tHead) makeSortable(table);

  function explore(data) {
    const plot = document.getElementById("accuracy-latency");
    const boxes = [...document.querySelectorAll("#deployments input")];
    const slider = document.getElementById("limit"), number = document.getElementById("limit-ms");
    const traces = plot.data.map((trace, at) => ({ at, ids: trace.customdata, x: trace.x })).filter((trace) => trace.ids);
    let limit = data.limit_ms ?? data.highest_ms;

    const allowed = () => new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const best = (rows, value) => rows.reduce((a, b) => (a === null || value(b) > value(a) ? b : a), null);

    function answer() {
      const names = allowed();
      const files = data.files.filter((f) => names.has(f.deployment));
      const kept = files.filter((f) => f.slowest_ms <= limit);
      // As in a search: what is within one standard error of the most accurate is as accurate, and the fastest wins.
      const highest = best(kept, (f) => f.accuracy);
      const error = highest ? Math.sqrt(highest.accuracy * (1 - highest.accuracy) * data.sampling) : 0;
      const winner = best(kept.filter((f) => f.accuracy >= highest.accuracy - error), (f) => -f.slowest_ms);
      const scored = data.candidates.filter((c) => c && names.has(c.deployment) && c.estimate !== null &&
        c.predicted_ms <= limit);
      const promising = best(scored, (c) => c.estimate);
      const under = `Within ${ms(limit)} ms`;
      text("who-wins", winner
        ? `${under}: ${winner.network} as ${winner.deployment}, ${percent(winner.accuracy)} on the validation images ` +
          `at ${ms(winner.slowest_ms)} ms (${winner.measured ? "median of its slowest session" : "predicted"}). ` +
          `${kept.length} of ${files.length} trained files keep it.`
        : `${under}: none of the ${files.length} trained files keeps it` +
          (files.length ? `; the fastest takes ${ms(Math.min(...files.map((f) => f.slowest_ms)))} ms.` : "."));
      text("who-else", promising
        ? `Of ${scored.length.toLocaleString("en")} candidates predicted to keep it, the one with the highest estimate: ` +
          `${promising.key}, ${data.is_accuracy ? percent(promising.estimate) : promising.estimate.toFixed(2)} at ` +
          `${ms(promising.predicted_ms)} ms.`
        : "No candidate is predicted to keep it.");
    }

    function redraw() {
      const names = allowed();
      for (const trace of traces) {
        const shown = trace.ids.map((id) => names.has(id < 0 ? data.files[-id - 1].deployment
          : data.candidates[id].deployment));
        Plotly.restyle(plot, { x: [trace.x.map((x, i) => shown[i] ? x : null)] }, [trace.at]);
      }
      answer();
    }

    function moved(value) {
      if (!(value > 0) || !Number.isFinite(value)) return;
      limit = value;
      number.value = ms(limit);
      slider.value = Math.log(limit / data.lowest_ms) / Math.log(data.highest_ms / data.lowest_ms);
      slider.setAttribute("aria-valuetext", `${ms(limit)} milliseconds`);
      if (data.limit_ms !== null) {
        const x = data.log ? Math.log10(limit) : limit;
        Plotly.relayout(plot, { "shapes[0].x1": limit, "shapes[1].x0": limit, "shapes[1].x1": limit,
          "annotations[0].x": x, "annotations[0].text": `limit ${ms(limit)} ms` });
      }
      answer();
    }

    function tell(id) {
      const c = data.candidates[id];
      const decisions = c.choices.map((option, i) => data.decisions[i]
        ? `${data.decisions[i][0]} ${data.decisions[i][1][option]}` : `${option}`);
      text("candidate-name", c.key);
      text("candidate-facts", `${c.deployment}, ${c.input}: predicted ${ms(c.predicted_ms)} ± ${ms(c.std_ms)} ms` +
        (c.estimate === null ? "" : `, estimated ${data.is_accuracy ? percent(c.estimate) : c.estimate.toFixed(2)}`) +
        `; ${c.became}.`);
      text("candidate-choices", decisions.join(", "));
    }

    boxes.forEach((box) => box.addEventListener("change", redraw));
    slider.addEventListener("input", () =>
      moved(data.lowest_ms * (data.highest_ms / data.lowest_ms) ** Number(slider.value)));
    number.addEventListener("change", () => moved(Number(number.value)));
    const chosen = (event) => {
      const id = event.points[0].customdata;
      if (id >= 0) tell(id);
    };
    plot.on("plotly_hover", chosen);
    plot.on("plotly_click", chosen);
    document.getElementById("explore").hidden = false;
    moved(limit);
  }

  function makeSortable(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2) return;
    const value = (row, column) => {
      const cell = row.cells[column].textContent.replace(/[,~%\s]/g, "");
      const read = /^[-+±]?[\d.]+(?:[kMGTB]|e[-+]?\d+)?/.exec(cell);
      const factor = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[cell.slice(-1)] ?? 1;
      return read ? parseFloat(cell) * factor : cell.toLowerCase();
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b
          : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? -1 : 1;
        rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }
})();
