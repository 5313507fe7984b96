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
  const text = cell => /^(?:\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])(?!\d+(\.\d+)?(e[+-]?\d+)?$)/.test(cell) ? `'${cell}` : cell;  // no formula
  const csv = rows => rows.map(row => row.map(text).map(cell => /[",\n]/.test(cell ?? "") ? `"${String(cell).replaceAll('"', '""')}"` : cell ?? "").join(",")).join("\n") + "\n";
  const fileName = text => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "data";

  // ------------------------------------------------------------------ theme
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const charts = [];
  const redraw = () => { legends.forEach(one => one()); charts.forEach(one => one.draw()); };
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
    if (isDark() && shade[value]) return shade[value];
    const parts = [1, 3, 5].map(i => parseInt(value.slice(i, i + 2), 16)), light = parts[0] * .3 + parts[1] * .59 + parts[2] * .11;
    if (!isDark() || light > 110) return value;
    return "#" + parts.map(part => Math.round(part + (255 - part) * (light < 20 ? .9 : .5)).toString(16).padStart(2, "0")).join("");
  };
  // Panels of a figure are drawn apart, each as wide as the page allows; those of a single curve together.
  const partsOf = ({ datasets, concat, facet, spec, columns, resolve, align, title, mark, encoding, ...shared }) => {
    if (mark) shared.layer = [{ mark, encoding }];
    const tables = Object.fromEntries(Object.entries(datasets).map(([name, table]) => {
      const keys = Object.keys(table);
      return [name, table[keys[0]].map((_, i) => Object.fromEntries(keys.map(key => [key, table[key][i]])))];
    }));
    const part = (own, rows = tables[own.data?.name] ?? []) => ({ spec: own, rows, tables: { ...tables, [own.data?.name]: rows } });
    if (concat) return concat.map(one => ({ ...part({ ...shared, ...one }), name: [one.title?.text ?? ""].flat().join(" ") }));
    if (!facet) return [part({ ...shared, title })];
    if (facet.field === "label") return [part({ ...shared, ...spec, title })];
    const all = tables[shared.data.name];
    return [...new Set(all.map(row => row[facet.field]))].map(name => ({ ...part({ ...shared, ...spec, title }, all.filter(row => row[facet.field] === name)), name }));
  };
  const scaleOf = (spec, channel) => spec.layer.map(layer => layer.encoding[channel]).find(one => one?.field === "label" && one.scale)?.scale;
  const SHOWN = "!isValid(shown) || indexof(shown, datum.label) >= 0";
  const ZOOM = { name: "zoom", select: { type: "interval", zoom: "wheel![event.shiftKey]" }, bind: "scales" };
  const HOVER = { name: "hover", select: { type: "point", on: "pointerover", nearest: true, clear: "pointerout" } };
  const NEAR = { condition: { param: "hover", empty: false, value: 1 }, value: 0 }, FAINT = { condition: { test: SHOWN, value: 1 }, value: .2 };
  const shade = { "#1c2430": "#e8ecf1", "#dfe4ea": "#38424e" };  // ink and grid on a dark page
  class Chart {
    constructor(place, { spec, rows, tables, told, name = "" }) {
      const colours = scaleOf(spec, "color"), dashes = scaleOf(spec, "strokeDash");
      Object.assign(this, { place, name, spec, rows, tables, told, labels: colours ? colours.domain : [] });
      this.looks = Object.fromEntries(this.labels.map((label, i) => [label, { colour: colours.range[i], dash: dashes ? dashes.range[i] : [] }]));
      this.zooms = ["x", "y"].every(axis => this.spec.layer.some(layer => layer.encoding[axis]?.type === "quantitative"));
    }
    get shown() { return hidden.size ? this.labels.filter(label => !hidden.has(label)) : null; }
    // The picture, and what pointing at it, choosing and zooming need.
    live() {
      const text = JSON.stringify(this.spec).replace(/"#[0-9A-Fa-f]{6}"/g, found => `"${colour(found.slice(1, -1))}"`);
      const { title, width, height, layer, config, ...spec } = JSON.parse(text), near = [], room = this.place.clientWidth;
      for (const one of layer.filter(one => !one.data)) {
        const { color, strokeDash, ...encoding } = one.encoding;
        for (const axis of ["x", "y"]) delete encoding[axis]?.axis?.values;  // they would not follow a zoom
        for (const channel of [color, strokeDash]) if (channel?.field === "label") channel.legend = null;
        if (color?.field === "label" && /line|area/.test(one.mark.type)) one.transform = [{ filter: SHOWN }, ...one.transform || []];
        else if (this.labels.length) one.encoding.opacity = FAINT;
        const ends = encoding.x?.scale?.domain;  // on a phone, a label left of a point in the left half would begin outside
        if (room < 400 && one.mark.align === "right" && ends) one.transform = [...one.transform || [], { filter: `datum.x > ${(ends[0] + ends[1]) / 2}` }];
        if (one.mark.type === "line") near.push({ ...one, mark: { type: "point", filled: true, size: 70, clip: true }, params: [HOVER], encoding: { ...encoding, color, opacity: NEAR } });
      }
      if (this.zooms && !matchMedia("(pointer: coarse)").matches) layer[0].params = [ZOOM];
      const isLow = height?.step;
      return {
        ...spec, layer: [...layer, ...near], datasets: this.tables, width: "container", params: [{ name: "shown", value: this.shown }],
        height: isLow ? height : Math.min(360, Math.max(240, room * .62)), ...(isLow ? {} : { autosize: { type: "fit-x", contains: "padding" } }),
        config: { ...config, background: null, axisY: { labelLimit: room < 600 ? 150 : 0 }, legend: { ...config.legend, ...(room < 400 ? { columns: 1 } : {}) } },
      };
    }
    async draw() {
      if (!this.place.clientWidth) return;
      this.view = (await vegaEmbed(this.place, this.live(), { actions: false, renderer: "svg", ast: true })).view;
      this.place.setAttribute("role", "img");  // one description, and not one for each mark
      this.place.setAttribute("aria-label", this.told);
      this.place.querySelector("svg").setAttribute("aria-hidden", "true");
      this.tell();
    }
    tell() { if (this.view) this.view.signal("shown", this.shown).runAsync(); }
  }
  const swatch = look => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.innerHTML = `<line x1="0" y1="5" x2="22" y2="5" stroke="${colour(look.colour)}" stroke-width="3" stroke-dasharray="${look.dash.join(" ")}"/>`;
    svg.setAttribute("width", 22); svg.setAttribute("height", 10);
    return svg;
  };
  const legend = looks => {
    const bar = make("div", { class: "bar", role: "group", "aria-label": "Show" });
    const labels = Object.keys(looks);
    const buttons = labels.map(label => make("button", { type: "button", title: "Click: show or hide. Double click: this one alone.",
      onclick: () => { hidden.has(label) ? hidden.delete(label) : hidden.add(label); update(); },
      ondblclick: () => { hidden = new Set(labels.filter(other => other !== label)); update(); } }));
    bar.append(...buttons, make("button", { type: "button", onclick: () => { hidden = new Set(); update(); } }, "all"));
    const paint = () => labels.forEach((label, i) => {
      buttons[i].setAttribute("aria-pressed", String(!hidden.has(label)));
      buttons[i].replaceChildren(swatch(looks[label]), label);
    });
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
    const figure = script.parentElement;
    if (typeof vegaEmbed === "undefined") return;
    figure.begin = async () => {
      const still = figure.querySelector(".static"), parts = [];
      try {
        const own = partsOf(JSON.parse(script.textContent)).map(part => new Chart(make("div", { class: "live" }), { ...part, told: still.getAttribute("aria-label") }));
        const panels = make("div", { class: own.length > 1 ? "panels" : "" }, ...own.map(one => make("div", {}, ...(one.name ? [make("h3", {}, one.name)] : []), one.place)));
        const up = [own[0].spec.title?.subtitle ?? []].flat().join(" ");
        const looks = Object.assign({}, ...own.map(one => one.looks)), label = figure.dataset.name;
        const bar = make("div", { class: "bar" },
          make("button", { type: "button", onclick: async () => save(`${fileName(label)}.svg`, await own[0].view.toSVG(), "image/svg+xml") }, "Picture (SVG)"));
        if (!matchMedia("(pointer: coarse)").matches && own[0].zooms) bar.append(make("small", { class: "note" }, "Shift and wheel: zoom. Drag: move. Double click: all."));
        parts.push(...(Object.keys(looks).length > 1 ? [legend(looks)] : []), panels, bar);
        still.after(...parts);
        still.hidden = true;
        for (const one of own) { await one.draw(); charts.push(one); }
        if (up) figure.querySelector("figcaption").append(make("span", {}, up));
      } catch (error) {  // the picture stays
        parts.forEach(part => part.remove());
        if (still) still.hidden = false;
        console.error(error);
      }
    };
    seen.observe(figure);
  });

  // ------------------------------------------------------------------ tabs: figures that are alternatives
  document.querySelectorAll(".figures").forEach(group => {
    const tabs = [...group.querySelectorAll(":scope > figure[data-tab]")];
    if (tabs.length < 2) return;
    const bar = make("div", { class: "bar", role: "group", "aria-label": "Figure" });
    const show = chosen => {
      tabs.forEach((figure, i) => { figure.hidden = i !== chosen; bar.children[i].setAttribute("aria-current", String(i === chosen)); });
      charts.filter(one => tabs[chosen].contains(one.place)).forEach(one => one.draw());
    };
    tabs.forEach((figure, i) => bar.append(make("button", { type: "button", onclick: () => show(i) }, figure.dataset.tab)));
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
      head.replaceChildren(make("button", { type: "button", onclick: () => sort(column, head.getAttribute("aria-sort") === "ascending") }, head.textContent));
    });
    const bar = make("div", { class: "bar" });
    if (rows.length > 5) bar.append(make("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", oninput: event => rows.forEach(row => row.hidden = !row.textContent.toLowerCase().includes(event.target.value.toLowerCase())) }));
    if (matchMedia("(max-width: 40rem)").matches && rows.length > 2) {
      const choice = make("select", { "aria-label": "Sort", onchange: event => sort(...JSON.parse(event.target.value)) }, make("option", { value: "[0,false]" }, "Sort by"));
      heads.forEach((head, i) => choice.append(make("option", { value: `[${i},false]` }, `${head.textContent} ↑`), make("option", { value: `[${i},true]` }, `${head.textContent} ↓`)));
      bar.append(choice);
    }
    const title = table.closest("figure")?.dataset.name ?? table.closest("section").querySelector("h2").textContent;
    bar.append(make("button", { type: "button", onclick: () => save(`${fileName(title)}.csv`, csv([heads, ...rows.map(row => [...row.cells])].map(row => (Array.isArray(row) ? row : [...row]).map(cell => cell.textContent.replace(/\n/g, " "))))) }, "Table (CSV)"));
    table.closest(".scroll").before(bar);
  });

  // ------------------------------------------------------------------ paper shows what is folded, and still pictures
  addEventListener("beforeprint", () => document.querySelectorAll("section > details:not([open])").forEach(one => { one.open = true; one.dataset.was = ""; }));
  addEventListener("afterprint", () => document.querySelectorAll("details[data-was]").forEach(one => { one.open = false; delete one.dataset.was; }));

  // ------------------------------------------------------------------ a link to a folded part unfolds it
  const unfold = () => { document.getElementById(location.hash.slice(1))?.querySelector("details")?.setAttribute("open", ""); };
  addEventListener("hashchange", unfold);
  unfold();
})();
