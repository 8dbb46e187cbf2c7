"use strict";
// Toggles: one button per algorithm hides it in every figure; one shows the single runs behind the means.
const hidden = new Set();

function applyHidden() {
  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.toggle)));
  }
  for (const group of document.querySelectorAll("g[data-series]")) {
    group.classList.toggle("off", hidden.has(group.dataset.series));
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-toggle], #singles");
  if (!button) return;
  if (button.id === "singles") {
    const shown = document.body.classList.toggle("singles");
    button.setAttribute("aria-pressed", String(shown));
    return;
  }
  const series = button.dataset.toggle;
  if (!hidden.delete(series)) hidden.add(series);
  applyHidden();
});

// Tables that are wider than the page say so.
function markWide() {
  for (const box of document.querySelectorAll(".scroll")) {
    box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
  }
}
addEventListener("resize", markWide);
document.addEventListener("toggle", markWide, true);

// Values under the pointer.
const tip = document.getElementById("tip");
const round = (value) => Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });

function nearest(line, x) {
  let best = 0;
  line.x.forEach((other, index) => {
    if (Math.abs(other - x) < Math.abs(line.x[best] - x)) best = index;
  });
  return best;
}

// Published curves have few points: one counts as far as halfway to its neighbours.
function reach(line, index, range) {
  const gaps = [line.x[index + 1] - line.x[index], line.x[index] - line.x[index - 1]].filter(Number.isFinite);
  return Math.max(range / 100, line.published && gaps.length ? Math.max(...gaps) / 2 : 0);
}

function row(line, index, x) {
  const entry = document.createElement("div");
  const name = document.createElement("span");
  const value = document.createElement("span");
  name.className = `s${line.series % 7}`;
  name.textContent = line.label;
  const spread = line.spread.length ? ` \u00b1 ${round(line.spread[index])}` : "";
  const seeds = line.seeds.length ? ` (${line.seeds[index]})` : "";
  const elsewhere = line.x[index] === x ? "" : ` at ${round(line.x[index])}`;
  value.textContent = round(line.y[index]) + spread + seeds + elsewhere;
  entry.append(name, value);
  return entry;
}

function show(event, svg, data, cursor) {
  const box = svg.getBoundingClientRect();
  const [left, top, width, height] = data.plot;
  const [low, high] = data.xRange;
  const place = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
  const asked = low + ((place - left) / width) * (high - low);
  const lines = data.lines.filter((line) => !hidden.has(String(line.series)));
  if (!lines.length || asked < low || asked > high) return hide(cursor);
  const candidates = lines.map((line) => line.x[nearest(line, asked)]);
  const x = candidates.reduce((best, other) => (Math.abs(other - asked) < Math.abs(best - asked) ? other : best));
  const at = left + (width * (x - low)) / (high - low);
  for (const [name, value] of Object.entries({ x1: at, x2: at, y1: top, y2: top + height })) cursor.setAttribute(name, value);
  const head = document.createElement("strong");
  head.textContent = `${data.xLabel}: ${round(x)}`;
  const close = (line) => Math.abs(line.x[nearest(line, x)] - x) <= reach(line, nearest(line, x), high - low);
  tip.replaceChildren(head, ...lines.filter(close).map((line) => row(line, nearest(line, x), x)));
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
}

function hide(cursor) {
  tip.hidden = true;
  for (const name of ["x1", "x2", "y1", "y2"]) cursor.removeAttribute(name);
}

function prepareFigures() {
  for (const figure of document.querySelectorAll("figure")) {
    const content = figure.querySelector("script")?.textContent;
    if (!content) continue;
    const svg = figure.querySelector("svg");
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
    const data = JSON.parse(content);
    svg.addEventListener("pointermove", (event) => show(event, svg, data, cursor));
    svg.addEventListener("pointerleave", () => hide(cursor));
  }
}

prepareFigures();
markWide();
