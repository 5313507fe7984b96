"use strict";
// What the reader has set stays when the page is loaded again.
(() => {
  const parts = Object.fromEntries([...document.querySelectorAll("section")].map(one => [one.querySelector("h2").textContent, one]));
  const heads = part => [...part.querySelectorAll("thead th")], filter = part => part.querySelector("input[type=search]");
  const keep = () => sessionStorage.setItem("set", JSON.stringify({
    focus: places().indexOf(document.activeElement),
    theme: document.documentElement.dataset.theme,
    parts: Object.entries(parts).map(([title, part]) => [title, part.querySelector("details")?.open, filter(part)?.value, heads(part).map(one => one.ariaSort)]),
  }));
  const restore = set => {
    if (set.theme && (set.theme === "dark") !== matchMedia("(prefers-color-scheme: dark)").matches) document.querySelector("nav button").click();
    for (const [title, open, text, sorts] of set.parts.filter(([title]) => title in parts)) {
      const part = parts[title], sorted = sorts.findIndex(one => one && one !== "none");
      if (open) part.querySelector("details").open = true;
      if (text && filter(part)) filter(part).value = text, filter(part).dispatchEvent(new Event("input"));
      if (sorted >= 0) for (const _ of sorts[sorted] === "descending" ? [1, 2] : [1]) heads(part)[sorted].querySelector("button").click();
    }
    places()[set.focus]?.focus({ preventScroll: true });
  };
  const places = () => [...document.querySelectorAll("a, button, input, select, summary, [tabindex]")];
  let isPaused = false;
  const pause = document.createElement("button");
  pause.type = "button";
  pause.textContent = "Pause";
  pause.setAttribute("aria-pressed", "false");
  pause.addEventListener("click", () => pause.setAttribute("aria-pressed", String(isPaused = !isPaused)));
  document.querySelector("nav").append(pause);
  const set = sessionStorage.getItem("set");
  sessionStorage.removeItem("set");
  if (set) restore(JSON.parse(set));
  setInterval(() => {
    if (isPaused || document.activeElement.matches("input, select")) return;
    keep();
    location.reload();
  }, 4000);
})();
