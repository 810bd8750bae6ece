// What a reader can do with the page: ask for another limit, for some deployments alone, for one candidate; sort tables.
// Everything it needs is in the page. Without JavaScript all figures stand in the tables.
"use strict";
(() => {
  const of = (id) => document.getElementById(id);
  const text = (id, value) => {  // a unit stays with its number
    of(id).textContent = value.replace(/(\d) (?=%|ms)/g, "$1\u00a0");
  };
  const ms = (value) => value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const first = (rows, compare) => rows.reduce((a, b) => (a === null || compare(b, a) < 0 ? b : a), null);

  // Orders of networks by objective, as in nas/controller/objective.py; those of a front are put in order there.
  const faster = (a, b) => a.call_ms - b.call_ms || b.accuracy - a.accuracy;
  const ORDERS = {
    accuracy: (a, b) => b.accuracy - a.accuracy || a.call_ms - b.call_ms,
    latency: faster,
    throughput: (a, b) => b.images_per_s - a.images_per_s || b.accuracy - a.accuracy,
    pareto: faster,
  };

  // The file that a network is delivered as, as in nas/deploy/choosing.py; null where none keeps the limit.
  function chosen(network, limit, names) {
    const kept = network.files.filter((f) => names.has(f.deployment) && f.judged_ms <= limit);
    const best = first(kept, (a, b) => b.accuracy - a.accuracy);
    const isLevel = (f) => network.slack === null ||
      f.accuracy >= best.accuracy - (f.ties[best.name] ?? network.slack) - 1e-9;
    const file = first(kept.filter(isLevel), (a, b) => a.speed_ms - b.speed_ms);
    return file === null ? null : { ...file, network: network.name };
  }

  // The winners, best first: one, or all of a front.
  function winners(objective, files) {
    const ordered = [...files].sort(ORDERS[objective]);
    if (objective !== "pareto") return ordered.slice(0, 1);
    const front = [];
    for (const f of ordered) if (!front.length || f.accuracy > front.at(-1).accuracy) front.push(f);
    return front.reverse();
  }

  function explore(data) {
    const plot = of("accuracy-latency");
    const boxes = [...document.querySelectorAll("#deployments input")];
    const slider = of("limit"), number = of("limit-ms"), select = of("candidate");
    const traces = plot.data.map((trace, at) => ({ at, ids: trace.customdata, x: trace.x })).filter((trace) => trace.ids);
    let limit = data.limit_ms ?? data.highest_ms;

    const allowed = () => new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const told = (f) => `${f.network ?? f.name} as ${f.network ? f.name : f.deployment}, ${percent(f.accuracy)} at ` +
      `${ms(f.judged_ms)} ms`;

    function answer() {
      if (!slider) return;
      const names = allowed();
      const kept = data.networks.map((network) => chosen(network, limit, names)).filter((f) => f !== null);
      const found = winners(data.objective, kept.filter((f) => f.worth_it));
      const files = data.networks.flatMap((network) => network.files).filter((f) => names.has(f.deployment));
      const under = `Within ${ms(limit)} ms`;
      const counted = `${kept.length} of ${data.networks.length} trained networks ${kept.length === 1 ? "keeps" : "keep"} it.`;
      if (found.length) {
        text("who-wins", `${under}: ${found.map(told).join("; ")} (${data.judged}). ${counted}`);
      } else if (kept.length) {
        text("who-wins", `${under}: nothing that is better than what can be had without a network. ${counted}`);
      } else {
        text("who-wins", `${under}: none of the ${data.networks.length} trained networks` +
          (files.length ? `; the fastest file takes ${ms(Math.min(...files.map((f) => f.judged_ms)))} ms.` : "."));
      }
      const others = data.baselines.filter((b) => names.has(b.deployment) && b.judged_ms <= limit);
      const byAccuracy = data.objective === "accuracy" || data.objective === "pareto";
      const baseline = first(others, (a, b) => byAccuracy ? b.accuracy - a.accuracy || a.judged_ms - b.judged_ms
        : a.judged_ms - b.judged_ms);
      text("best-baseline", baseline ? `The best baseline that keeps it: ${told(baseline)}.`
        : data.baselines.length ? "No trained baseline keeps it." : "");
      const scored = data.candidates.filter((c) => names.has(c.deployment) && c.estimate !== null &&
        c.predicted_ms <= limit);
      const promising = first(scored, (a, b) => b.estimate - a.estimate);
      text("who-else", promising
        ? `Of ${scored.length.toLocaleString("en")} candidates whose predicted median is within it, the one with the ` +
          `highest estimate: ${promising.key}, ${estimate(promising)} at ${ms(promising.predicted_ms)} ms.`
        : "No candidate's predicted median is within it.");
    }

    const estimate = (c) => data.is_accuracy ? percent(c.estimate) : c.estimate.toFixed(2);

    function redraw() {
      const names = allowed();
      for (const trace of traces) {
        const shown = trace.ids.map((id) => names.has(id < 0 ? data.drawn[-id - 1] : data.candidates[id].deployment));
        Plotly.restyle(plot, { x: [trace.x.map((x, i) => shown[i] ? x : null)] }, [trace.at]);
      }
      answer();
    }

    function moved(value) {
      if (value > 0 && Number.isFinite(value)) limit = value;  // else the last one stands again
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
      select.value = id;
      text("candidate-name", c.key);
      text("candidate-facts", `${c.deployment}, ${c.input}: predicted ${ms(c.predicted_ms)} ± ${ms(c.std_ms)} ms` +
        (c.estimate === null ? "" : `, estimated ${estimate(c)}`) + `; ${c.became}.`);
      text("candidate-choices", decisions.join(", "));
    }

    function mark(id) {
      for (const trace of traces) {
        const at = trace.ids.indexOf(id);
        if (at >= 0 && plot.data[trace.at].x[at] !== null) {
          Plotly.Fx.hover(plot, [{ curveNumber: trace.at, pointNumber: at }]);
        }
      }
    }

    const byEstimate = data.candidates.map((_, id) => id)
      .sort((a, b) => data.candidates[b].estimate - data.candidates[a].estimate);
    for (const id of byEstimate) {
      const c = data.candidates[id];
      select.append(new Option(`${estimate(c)}, ${ms(c.predicted_ms)} ms: ${c.key}`, id));
    }
    select.addEventListener("change", () => {
      if (select.value === "") {
        for (const id of ["candidate-name", "candidate-facts", "candidate-choices"]) text(id, "");
      } else {
        tell(Number(select.value));
        mark(Number(select.value));
      }
    });
    boxes.forEach((box) => box.addEventListener("change", redraw));
    if (slider) {
      slider.addEventListener("input", () =>
        moved(data.lowest_ms * (data.highest_ms / data.lowest_ms) ** Number(slider.value)));
      number.addEventListener("change", () => moved(Number(number.value)));
      moved(limit);
    }
    const pointed = (event) => {
      const id = event.points[0].customdata;
      if (id >= 0) tell(id);
    };
    plot.on("plotly_hover", pointed);
    plot.on("plotly_click", pointed);
    of("explore").hidden = false;
  }

  function makeSortable(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 2) return;
    // A number, a text, or null for a cell that says nothing: those come last in both directions.
    const value = (row, column) => {
      const cell = row.cells[column].textContent.replace(/[,~%\s]/g, "");
      if (cell === "" || cell === "-") return null;
      const read = /^±?([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)([kMGT]?)/.exec(cell);
      return read ? Number(read[1]) * { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 }[read[2]] : cell.toLowerCase();
    };
    const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b
      : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? -1 : 1;
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
        const known = rows.map((row) => ({ row, value: value(row, column) }));
        const told = known.filter((k) => k.value !== null);
        told.sort((a, b) => (down ? -1 : 1) * compare(a.value, b.value));
        table.tBodies[0].append(...told.map((k) => k.row), ...known.filter((k) => k.value === null).map((k) => k.row));
      });
    });
  }

  const holder = of("explore-data");
  if (holder) explore(JSON.parse(holder.textContent));
  for (const table of document.querySelectorAll(".scroll > table")) if (table.tHead) makeSortable(table);
})();
