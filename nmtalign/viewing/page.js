/* What all pages share. Text of a corpus only ever becomes text: nothing here parses HTML. */

const $ = (id) => document.getElementById(id);
const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
const cut = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text); // no half emoji
const percent = (value) => (value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`);

/* The texts of the data of a kind that the page contains. */
const stored = (kind) => [...document.querySelectorAll(`script[data-kind="${kind}"]`)].map((one) => one.textContent);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const bar = (share) => make("span", { class: "track" }, make("span", { class: "fill", style: `width: ${100 * share}%` }));

/* Copies a text; fails where the browser does not allow it, as in a page of another machine without HTTPS. */
const copy = async (text) => navigator.clipboard.writeText(text);

/* A slider over 0 to `last`; `text(value)` is shown beside it, and `changed(value)` is called. */
function slider(label, last, text, changed) {
  const input = make("input", { type: "range", min: 0, max: last, value: 0 }), output = make("output");
  const set = (value) => {
    input.value = value;
    output.textContent = text(+input.value);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => { set(+input.value); changed(+input.value); });
  set(0);
  return { element: make("label", { class: "slider" }, make("span", {}, label), input, output), input, set };
}

/* A table whose columns of numbers, not of text or bars, can be sorted by a click on their heads. Cells without a number
   come last; of an interval, [low, high], the low end counts. */
function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0], rows = [...body.rows];
  for (const [column, head] of heads.entries()) {
    if (head.matches(".text") || rows.length < 2) continue;
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = { descending: "ascending", ascending: "none" }[head.ariaSort] ?? "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      if (order !== "none") head.ariaSort = order;
      const value = (row) => Number.parseFloat(row.cells[column].textContent.replaceAll(/[,[]/g, ""));
      const sign = order === "ascending" ? 1 : -1;
      const compare = (a, b) => Number.isNaN(a) - Number.isNaN(b) || sign * (a - b) || 0;
      body.append(...(order === "none" ? rows : [...rows].sort((a, b) => compare(value(a), value(b)))));
    });
  }
}

/* Two lines of words. The word under the pointer, or with the focus, colours the words of the other line by their
   weights. Only one word of a line is in the order of Tab; arrow keys move between words. */
function wordPair(source, target, weight, chosen) {
  const words = { source, target }, lines = {}, other = { source: "target", target: "source" };
  for (const side of ["source", "target"]) {
    lines[side] = make("p", { class: `words ${side}`, dir: "auto", lang: "", role: "group", "aria-label": `${side} words` });
    words[side].forEach((word, index) => {
      const kind = /\p{L}/u.test(word) ? "word" : "word mark";
      lines[side].append(
        make("span", { class: kind, tabindex: index ? -1 : 0, "data-side": side, "data-index": index }, word), " ");
    });
  }
  const element = make("div", { class: "pair" }, lines.source, lines.target);
  const select = (word) => {
    for (const side of ["source", "target"]) {
      [...lines[side].children].forEach((one, index) => {
        const read = word && side !== word.side;
        one.style.setProperty("--w", read ? weight(...(side === "source" ? [word.index, index] : [index, word.index])) : 0);
        one.classList.toggle("chosen", Boolean(word) && !read && index === word.index);
      });
    }
  };
  const wordOf = ({ target: at }) => {
    const { side, index } = at.dataset;
    return side ? { side, index: Number(index) } : null;
  };
  element.addEventListener("pointerover", (event) => chosen(wordOf(event)));
  element.addEventListener("pointerleave", () => chosen(null));
  element.addEventListener("focusin", (event) => chosen(wordOf(event)));
  element.addEventListener("focusout", () => chosen(null));
  element.addEventListener("keydown", (event) => {
    const { side, index } = wordOf(event) ?? {};
    const right = side && getComputedStyle(lines[side]).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: right, ArrowLeft: -right, Home: -index, End: words[side]?.length - 1 - index }[event.key];
    const next = side && (["ArrowUp", "ArrowDown"].includes(event.key)
      ? lines[other[side]].querySelector('[tabindex="0"]') : lines[side].children[index + step]);
    if (!next) return;
    event.preventDefault();
    for (const one of next.parentElement.children) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  });
  return { element, select };
}

/* A heat map as in the article's Figure 3: source along x, target along y, weights from 0 black to 1 white. Gold links
   are dots (sure) and dashed rings (possible), hard links frames. */
function heatMap(source, target, weight, { sure = [], possible = [], links = [] }, chosen) {
  const size = Math.max(9, Math.min(26, Math.floor(880 / source.length))), letters = Math.min(13, 0.7 * size);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${letters}px system-ui, sans-serif`;
  const shown = (word) => cut(word, 28);
  const room = (words) => 10 + Math.max(...words.map((word) => pen.measureText(shown(word)).width));
  const left = room(target), top = room(source), width = size * source.length, height = size * target.length;
  const across = left + width + 2, down = top + height + 2;
  const svg = draw("svg", { width: across, viewBox: `0 0 ${across} ${down}`, role: "img", class: "map", "font-size": letters,
    "aria-label": `Heat map of ${target.length} target words and ${source.length} source words` });
  svg.style.minWidth = `${0.6 * across}px`; // it shrinks a little where there is less room, else it is scrolled
  svg.append(draw("rect", { x: left, y: top, width, height, class: "paper" }));
  target.forEach((word, t) => {
    const y = top + size * t;
    svg.append(draw("text", { x: left - 6, y: y + size * 0.7, "text-anchor": "end" }, shown(word)));
    source.forEach((_, s) => {
      const grey = Math.round(255 * weight(t, s));
      if (grey) svg.append(draw("rect", { x: left + size * s, y, width: size, height: size, fill: `rgb(${grey},${grey},${grey})` }));
    });
  });
  source.forEach((word, s) => svg.append(draw("text", {
    transform: `translate(${left + size * (s + 0.7)} ${top - 6}) rotate(-90)` }, shown(word))));
  for (const [s, t] of links) {
    svg.append(draw("rect", { x: left + size * (s + 0.1), y: top + size * (t + 0.1), width: 0.8 * size, height: 0.8 * size,
      class: "link" }));
  }
  const isSure = new Set(sure.map(String));
  for (const [s, t] of possible) {
    svg.append(draw("circle", { cx: left + size * (s + 0.5), cy: top + size * (t + 0.5), r: 0.24 * size,
      class: isSure.has(`${s},${t}`) ? "sure" : "possible" }));
  }
  const frame = svg.appendChild(draw("rect", { class: "chosen", visibility: "hidden" }));
  const select = (word) => {
    frame.setAttribute("visibility", word ? "visible" : "hidden");
    if (!word) return;
    const row = word.side === "target";
    const place = row ? { x: left, y: top + size * word.index, width, height: size }
      : { x: left + size * word.index, y: top, width: size, height };
    fill(frame, place, []);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = across / box.width;
    const s = Math.floor(((event.clientX - box.left) * scale - left) / size);
    const t = Math.floor(((event.clientY - box.top) * scale - top) / size);
    if (t >= 0 && t < target.length) chosen({ side: "target", index: t });
    else chosen(t < 0 && s >= 0 && s < source.length ? { side: "source", index: s } : null);
  });
  svg.addEventListener("pointerleave", () => chosen(null));
  return { element: make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Heat map" }, svg), select };
}

/* Linked words, what the chosen word reads, and the heat map; a word chosen in one is shown in all.
   `rest` is the word that is shown while none is chosen. */
function attention(source, target, weight, marks = {}, rest = null, open = true) {
  const reading = make("p", { class: "reading quiet", role: "status" });
  const show = (word) => {
    const at = word ?? rest;
    for (const one of [pair, map]) one.select(at);
    if (!at) {
      reading.textContent = "Point at a word, or move to it with Tab and the arrow keys, to see its weights.";
      return;
    }
    const [words, others] = at.side === "target" ? [target, source] : [source, target];
    const weights = others.map((other, index) => [at.side === "target" ? weight(at.index, index) : weight(index, at.index), other]);
    const best = weights.sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([value]) => value >= 0.05);
    const isolated = (word) => make("bdi", {}, word); // a number stays behind its word, also behind an Arabic one
    const read = best.flatMap(([value, other]) => [", ", isolated(other), ` ${fixed(value)}`]).slice(1);
    reading.replaceChildren(isolated(words[at.index]), at.side === "target" ? " reads " : " is read by ",
      ...(read.length ? read : ["nothing with a weight of 0.05 or more"]));
  };
  const pair = wordPair(source, target, weight, show), map = heatMap(source, target, weight, marks, show);
  show(null);
  return make("div", {}, pair.element, reading, make("details", { open }, make("summary", {}, "Heat map"), map.element));
}

for (const table of document.querySelectorAll("table[data-sortable]")) sortable(table);
