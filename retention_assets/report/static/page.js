// Draws the plots of a report with Observable Plot and D3, for the width of the screen and again when it changes.
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const KINDS = ["candidate", "waiting", "stays"];
  const WORDS = { candidate: "may be deleted", waiting: "waits", stays: "stays" };
  const colour = (name) => `var(--${name})`;
  const MOST = 12; // groups in a plot; the table has more
  const MOST_FOLDERS = 500; // as many as the table has

  function bytes(size) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    const power = size < 1 ? 0 : Math.min(Math.floor(Math.log2(size) / 10), units.length - 1);
    return `${d3.format(power ? ".3~g" : ",.0f")(size / 2 ** (10 * power))} ${units[power]}`;
  }

  // Ticks at round numbers of the unit that fits.
  function ticks(most, count) {
    const unit = 2 ** (10 * Math.max(0, Math.floor(Math.log2(Math.max(most, 1)) / 10)));
    return d3.ticks(0, most / unit, count).map((tick) => tick * unit);
  }

  const amountText = (amount) => `${d3.format(",")(amount.objects)} ${amount.objects === 1 ? "object" : "objects"}, ${bytes(amount.bytes)}`;
  const size = (group) => d3.sum(KINDS, (kind) => (group[kind] ? group[kind].bytes : 0));
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  function legend(entries) {
    const list = document.createElement("div");
    list.className = "legend";
    for (const [word, fill] of entries) {
      const entry = document.createElement("span");
      entry.textContent = word;
      entry.style.setProperty("--of", fill);
      list.append(entry);
    }
    return list;
  }

  const ofKinds = (kinds) => legend(kinds.map((kind) => [WORDS[kind], colour(kind)]));

  function empty(text) {
    const line = document.createElement("p");
    line.textContent = text;
    return [line];
  }

  // Bars of bytes over days. At most one label for each 90 pixels.
  function bars(width, rows, days, fill) {
    const highest = d3.max(d3.rollups(rows, (of) => d3.sum(of, (row) => row.bytes), (row) => row.day), (one) => one[1]);
    const step = Math.ceil(days.length / Math.max(2, Math.floor(width / 90)));
    return Plot.plot({
      width,
      height: Math.min(260, 140 + width / 6),
      marginLeft: 62,
      x: { type: "band", domain: days, ticks: days.filter((_, index) => index % step === 0), label: null, padding: 0.25 },
      y: { label: null, grid: true, ticks: ticks(highest, 4), tickFormat: bytes },
      marks: [
        Plot.barY(rows, { x: "day", y: "bytes", fill, title: "title", tip: true, maxWidth: 40 }),
        Plot.ruleY([0]),
      ],
    });
  }

  function overTime(width, kinds) {
    const stays = (totals) => {
      const rest = Object.entries(totals).filter(([state]) => !(state in WORDS)).map(([, amount]) => amount);
      return { objects: d3.sum(rest, (one) => one.objects), bytes: d3.sum(rest, (one) => one.bytes) };
    };
    const rows = figures.over_time.flatMap(({ day, totals }) =>
      kinds.map((kind) => {
        const amount = kind === "stays" ? stays(totals) : totals[kind] || { objects: 0, bytes: 0 };
        return { day, kind, bytes: amount.bytes, title: `${day}: ${WORDS[kind]}\n${amountText(amount)}` };
      })
    );
    if (!d3.sum(rows, (row) => row.bytes)) return empty("Nothing may be deleted, and nothing waits.");
    const days = figures.over_time.map((one) => one.day);
    return [ofKinds(kinds), bars(width, rows, days, (row) => colour(row.kind))];
  }

  function groups(width, name) {
    const all = figures.groups[name];
    const shown = name === "age" ? all : all.slice(0, MOST);
    const kinds = KINDS.filter((kind) => shown.some((one) => one[kind] && one[kind].objects));
    if (!kinds.length) return empty("There is nothing to show.");
    const rows = shown.flatMap((one) =>
      kinds
        .filter((kind) => one[kind] && one[kind].objects)
        .map((kind) => ({ ...one[kind], name: one.name, kind, title: `${one.name}: ${WORDS[kind]}\n${amountText(one[kind])}` }))
    );
    const longest = d3.max(shown, size);
    const letters = width < 500 ? 16 : 34;
    const margin = Math.min(width / 3, 14 + 7 * d3.max(shown, (one) => Math.min(one.name.length, letters)));
    const plot = Plot.plot({
      width,
      height: 40 + 24 * shown.length,
      marginLeft: margin,
      marginRight: 24,
      x: { label: null, grid: true, ticks: ticks(longest, width < 500 ? 3 : 6), tickFormat: bytes },
      y: { label: null, domain: shown.map((one) => one.name), tickFormat: (text) => cut(text, letters), padding: 0.25 },
      marks: [
        Plot.barX(rows, { x: "bytes", y: "name", fill: (row) => colour(row.kind), title: "title", tip: true }),
        Plot.ruleX([0]),
      ],
    });
    return [ofKinds(kinds), plot];
  }

  function folders(width) {
    const top = (name) => (name.includes("/") ? `${name.split("/")[0]}/` : name);
    const shown = d3.sort(figures.groups.folder, (one) => -size(one)).slice(0, MOST_FOLDERS).filter(size);
    if (!shown.length) return empty("There is nothing to show.");
    const tree = {
      children: d3.groups(shown, (one) => top(one.name)).map(([name, inside]) => ({
        name,
        children: inside.map((one) => ({
          name: one.name,
          children: KINDS.filter((kind) => one[kind] && one[kind].bytes).map((kind) => ({ name: one.name, kind, ...one[kind] })),
        })),
      })),
    };
    const height = Math.max(240, Math.min(420, width * 0.6));
    const root = d3.hierarchy(tree).sum((one) => one.bytes || 0).sort((a, b) => b.value - a.value);
    d3.treemap().size([width, height]).paddingInner(1).paddingTop((node) => (node.depth === 1 ? 19 : 0)).round(true)(root);
    const svg = d3.create("svg").attr("viewBox", [0, 0, width, height]).attr("width", width).attr("height", height)
      .attr("role", "img").attr("aria-label", "Bytes by folder; the numbers are in the table");
    const text = (parent, node, words, x, y, room) =>
      parent.append("text").attr("x", x).attr("y", y).attr("font-size", 12).text(cut(words, Math.max(1, Math.floor(room / 7))));
    for (const node of root.children || []) {
      if (node.x1 - node.x0 > 30 && node.y1 - node.y0 > 22)
        text(svg, node, `${node.data.name} ${bytes(node.value)}`, node.x0 + 2, node.y0 + 14, node.x1 - node.x0).attr("fill", "currentColor");
    }
    for (const leaf of root.leaves()) {
      const [wide, high] = [leaf.x1 - leaf.x0, leaf.y1 - leaf.y0];
      if (wide < 0.5 || high < 0.5) continue;
      const cell = svg.append("g");
      cell.append("rect").attr("x", leaf.x0).attr("y", leaf.y0).attr("width", wide).attr("height", high).attr("fill", colour(leaf.data.kind));
      cell.append("title").text(`${leaf.data.name}: ${WORDS[leaf.data.kind]}\n${amountText(leaf.data)}`);
      const inner = leaf.data.name.slice(top(leaf.data.name).length);
      if (inner && wide > 40 && high > 18) text(cell, leaf, inner, leaf.x0 + 4, leaf.y0 + 14, wide - 8).attr("fill", "var(--back)");
    }
    return [ofKinds(KINDS), svg.node()];
  }

  function forecast(width) {
    const all = figures.forecast.days.filter((one) => one.day > figures.forecast.first);
    if (!all.length) return empty(`Nothing more comes due until ${figures.forecast.last}.`);
    const sums = d3.rollups(all.flatMap((one) => one.by_prefix), (rows) => d3.sum(rows, (row) => row.bytes), (row) => row.name);
    const names = sums.sort((a, b) => b[1] - a[1]).slice(0, 7).map(([name]) => name);
    const fills = new Map(names.map((name, index) => [name, d3.schemeTableau10[index]]));
    const other = "#9a9a9a";
    const rows = all.flatMap((one) =>
      one.by_prefix.map((row) => ({ day: one.day, bytes: row.bytes, fill: fills.get(row.name) || other, title: `${one.day}: ${row.name}\n${amountText(row)}` }))
    );
    const days = d3.utcDays(new Date(figures.forecast.first), d3.utcDay.offset(new Date(figures.forecast.last), 1)).map((day) => day.toISOString().slice(0, 10));
    const entries = [...fills].concat(sums.length > names.length ? [["others", other]] : []);
    return [legend(entries), bars(width, rows, days.slice(1), "fill")];
  }

  function history(width) {
    const nodes = figures.history.map((one) => ({ ...one, when: new Date(one.at) }));
    if (!nodes.length) return empty("There is nothing to show.");
    const byName = new Map(nodes.map((one) => [one.name, one]));
    const links = nodes.flatMap((one) => one.parents.map((parent) => ({ from: one, to: byName.get(parent) })));
    const states = ["head", "kept", "protected", "expired"].filter((state) => nodes.some((one) => one.state === state));
    const lanes = 1 + d3.max(nodes, (one) => one.lane);
    const [first, last] = d3.extent(nodes, (one) => +one.when);
    const thirdOf = (one) => Math.min(2, Math.floor((3 * (one.when - first)) / (last - first || 1)));
    const title = (one) =>
      [one.name, `${one.at.slice(0, 16).replace("T", " ")} UTC`, one.state + (one.due_since && one.state === "expired" ? ` since ${one.due_since.slice(0, 10)}` : ""), one.names.join(", "), one.detail]
        .filter(Boolean).join("\n");
    const plot = Plot.plot({
      width,
      height: 70 + 34 * lanes,
      marginLeft: 12,
      marginRight: 12,
      marginTop: 26,
      x: { type: "utc", label: null, grid: true, ticks: width < 500 ? 4 : 8 },
      y: { axis: null, domain: [lanes - 0.5, -0.5] },
      marks: [
        Plot.link(links, { x1: (one) => one.from.when, y1: (one) => one.from.lane, x2: (one) => one.to.when, y2: (one) => one.to.lane, stroke: "currentColor", strokeOpacity: 0.35, curve: "bump-x" }),
        Plot.dot(nodes, { x: "when", y: "lane", r: 5, fill: (one) => colour(one.state), stroke: "var(--back)", title, tip: true }),
        ...["start", "middle", "end"].map((textAnchor, third) =>
          Plot.text(nodes.filter((one) => one.names.length && thirdOf(one) === third), { x: "when", y: "lane", dy: -12, fontSize: 11, text: (one) => cut(one.names.join(", "), 18), textAnchor, fill: "currentColor" })
        ),
      ],
    });
    return [legend(states.map((state) => [state, colour(state)])), plot];
  }

  const plots = {
    over_time: (width) => overTime(width, KINDS),
    reclaimable: (width) => overTime(width, ["candidate", "waiting"]),
    reason: (width) => groups(width, "reason"),
    rule: (width) => groups(width, "rule"),
    branch: (width) => groups(width, "branch"),
    age: (width) => groups(width, "age"),
    folders,
    forecast,
    history,
  };

  let drawn = 0;
  function draw() {
    const width = Math.floor(document.querySelector("main").getBoundingClientRect().width) - 32;
    if (width === drawn) return;
    drawn = width;
    for (const element of document.querySelectorAll("[data-plot]")) element.replaceChildren(...plots[element.dataset.plot](width));
  }
  draw();
  addEventListener("resize", draw);
})();
