"use strict";
// What the page adds where scripts run: charts to point at, a legend that chooses, tabs, tables to sort and filter,
// downloads, and the theme.  Without it, the static pictures and tables stay.
(() => {
  const make = (name, attributes = {}, ...inside) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) key.startsWith("on") ? element.addEventListener(key.slice(2), value) : element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };
  const save = (name, text, type = "text/csv") => {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const csv = rows => rows.map(row => row.map(cell => /[",\n]/.test(cell ?? "") ? `"${String(cell).replaceAll('"', '""')}"` : cell ?? "").join(",")).join("\n") + "\n";
  const fileName = text => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "data";

  // ------------------------------------------------------------------ theme
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const charts = [];
  const redraw = () => charts.forEach(one => one.draw());
  const theme = make("button", { type: "button", onclick: () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); redraw(); } });
  const name = () => theme.textContent = isDark() ? "Light" : "Dark";
  name();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
  document.querySelector("nav").append(theme);

  // ------------------------------------------------------------------ charts
  let hidden = new Set(JSON.parse(document.body.dataset.hidden || "[]"));
  const legends = [];
  const update = () => { legends.forEach(one => one()); charts.forEach(one => one.tell()); };
  const colour = value => {  // dark ones would not be seen on a dark page
    const parts = [1, 3, 5].map(i => parseInt(value.slice(i, i + 2), 16)), light = parts[0] * .3 + parts[1] * .59 + parts[2] * .11;
    if (!isDark() || light > 110) return value;
    return "#" + parts.map(part => Math.round(part + (255 - part) * (light < 20 ? .9 : .5)).toString(16).padStart(2, "0")).join("");
  };
  const config = () => {
    const [ink, line] = isDark() ? ["#e8ecf1", "#38424e"] : ["#1c2430", "#dfe4ea"];
    return {
      background: null, font: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", view: { stroke: null },
      axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12, titleFontSize: 13, titleFontWeight: "normal", labelOverlap: true },
      text: { fill: ink, fontSize: 12 }, rule: { color: ink }, line: { color: ink },
    };
  };
  class Chart {
    constructor(place, { spec, data, looks }) {
      const columns = Object.keys(data);
      Object.assign(this, { place, spec, looks, columns });
      this.rows = data.label.map((_, i) => Object.fromEntries(columns.map(column => [column, data[column][i]])));
      this.labels = [...new Set(data.label)];
    }
    get shown() { return hidden.size ? this.labels.filter(label => !hidden.has(label)) : null; }
    async draw() {
      if (!this.place.clientWidth) return;
      const text = JSON.stringify(this.spec).replace(/"#[0-9A-Fa-f]{6}"/g, found => `"${colour(found.slice(1, -1))}"`);
      const spec = { height: Math.min(360, Math.max(240, this.place.clientWidth * .62)), ...JSON.parse(text), width: "container", data: { name: "table", values: this.rows }, autosize: { type: "fit-x", contains: "padding" } };
      if (spec.height.step) delete spec.autosize;
      spec.params = [{ name: "shown", value: this.shown }];
      if (matchMedia("(pointer: coarse)").matches) spec.layer.forEach(layer => layer.params = (layer.params || []).filter(one => one.name !== "zoom"));
      this.drawn = vegaEmbed(this.place, spec, { actions: false, renderer: "svg", config: config() });
      this.view = (await this.drawn).view;
      this.tell();
    }
    tell() { if (this.view) this.view.signal("shown", this.shown).runAsync(); }
  }
  const swatch = look => {
    const dash = { "-": "", "--": "5 3", "-.": "6 2 1 2", ":": "1 3" }[look[1]];
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.innerHTML = `<line x1="0" y1="5" x2="22" y2="5" stroke="${colour(look[0])}" stroke-width="3" stroke-dasharray="${dash}"/>`;
    svg.setAttribute("width", 22); svg.setAttribute("height", 10);
    return svg;
  };
  const legend = looks => {
    const bar = make("div", { class: "bar", role: "group", "aria-label": "Show" });
    const labels = Object.keys(looks);
    const paint = () => bar.replaceChildren(
      ...labels.map(label => make("button", { type: "button", "aria-pressed": String(!hidden.has(label)), title: "Click: show or hide. Double click: this one alone.",
        onclick: () => { hidden.has(label) ? hidden.delete(label) : hidden.add(label); update(); },
        ondblclick: () => { hidden = new Set(labels.filter(other => other !== label)); update(); } }, swatch(looks[label]), label)),
      make("button", { type: "button", onclick: () => { hidden = new Set(); update(); } }, "all"));
    legends.push(paint);
    paint();
    return bar;
  };
  const seen = new IntersectionObserver(entries => entries.forEach(entry => {
    if (!entry.isIntersecting) return;
    seen.unobserve(entry.target);
    entry.target.begin();
  }), { rootMargin: "300px" });
  document.querySelectorAll("figure > script").forEach(script => {
    const figure = script.parentElement, found = JSON.parse(script.textContent);
    if (typeof vegaEmbed === "undefined" || !found.length) return;
    figure.begin = async () => {
      const panels = make("div", { class: found.length > 1 ? "panels" : "" }), own = [];
      for (const one of found) {
        const place = make("div", { class: "live" });
        panels.append(one.title && found.length > 1 ? make("div", {}, make("h3", {}, one.title), place) : make("div", {}, place));
        own.push(new Chart(place, one));
      }
      const looks = Object.assign({}, ...found.map(one => one.looks)), label = figure.dataset.name;
      const bar = make("div", { class: "bar" },
        make("button", { type: "button", onclick: () => save(`${fileName(label)}.csv`, csv([["panel", ...own[0].columns], ...own.flatMap((one, i) => one.rows.map(row => [found[i].title, ...one.columns.map(c => row[c])]))])) }, "Data (CSV)"),
        make("button", { type: "button", onclick: async () => save(`${fileName(label)}.svg`, await own[0].view.toSVG(), "image/svg+xml") }, "Picture (SVG)"));
      if (!matchMedia("(pointer: coarse)").matches && figure.querySelector("script").textContent.includes('"zoom"')) bar.append(make("small", { class: "note" }, "Shift and wheel: zoom. Drag: move. Double click: all."));
      const still = figure.querySelector(".static");
      const parts = Object.keys(looks).length > 1 ? [legend(looks), panels, bar] : [panels, bar];
      figure.append(...parts);
      if (still) still.hidden = true;
      try { for (const one of own) { await one.draw(); charts.push(one); } }
      catch (error) { parts.forEach(part => part.remove()); if (still) still.hidden = false; console.error(error); }
    };
    seen.observe(figure);
  });

  // ------------------------------------------------------------------ tabs: figures that are alternatives
  document.querySelectorAll(".figures").forEach(group => {
    const tabs = [...group.querySelectorAll(":scope > figure[data-tab]")];
    if (tabs.length < 2) return;
    const bar = make("div", { class: "bar", role: "tablist" });
    const show = chosen => {
      tabs.forEach((figure, i) => { figure.hidden = i !== chosen; bar.children[i].setAttribute("aria-selected", String(i === chosen)); });
      charts.filter(one => tabs[chosen].contains(one.place)).forEach(one => one.draw());
    };
    tabs.forEach((figure, i) => bar.append(make("button", { type: "button", role: "tab", onclick: () => show(i) }, figure.dataset.tab)));
    group.prepend(bar);
    show(0);
  });

  // ------------------------------------------------------------------ tables
  const value = cell => { const number = parseFloat(cell.textContent.replace(/,/g, "")); return Number.isNaN(number) ? cell.textContent : number; };
  const below = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  document.querySelectorAll("section table").forEach(table => {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const sort = (column, down) => {
      heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
      body.append(...[...rows].sort((a, b) => (down ? -1 : 1) * below(value(a.cells[column]), value(b.cells[column]))));
    };
    heads.forEach((head, column) => {
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      const turn = () => sort(column, head.getAttribute("aria-sort") === "ascending");
      head.addEventListener("click", turn);
      head.addEventListener("keydown", event => { if (event.key === "Enter") turn(); });
    });
    const bar = make("div", { class: "bar" });
    if (rows.length > 5) bar.append(make("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", oninput: event => rows.forEach(row => row.hidden = !row.textContent.toLowerCase().includes(event.target.value.toLowerCase())) }));
    if (matchMedia("(max-width: 40rem)").matches && rows.length > 2) {
      const choice = make("select", { "aria-label": "Sort", onchange: event => sort(...JSON.parse(event.target.value)) }, make("option", { value: "[0,false]" }, "Sort by"));
      heads.forEach((head, i) => choice.append(make("option", { value: `[${i},false]` }, `${head.textContent} ↑`), make("option", { value: `[${i},true]` }, `${head.textContent} ↓`)));
      bar.append(choice);
    }
    const title = table.closest("section").querySelector("h2").textContent;
    bar.append(make("button", { type: "button", onclick: () => save(`${fileName(title)}.csv`, csv([heads, ...rows.map(row => [...row.cells])].map(row => (Array.isArray(row) ? row : [...row]).map(cell => cell.textContent.replace(/\n/g, " "))))) }, "Table (CSV)"));
    table.closest(".scroll").before(bar);
  });

  // ------------------------------------------------------------------ a link to a folded part unfolds it
  const unfold = () => { document.getElementById(location.hash.slice(1))?.querySelector("details")?.setAttribute("open", ""); };
  addEventListener("hashchange", unfold);
  unfold();
})();
