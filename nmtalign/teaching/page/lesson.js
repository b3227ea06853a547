"use strict";
// The page only chooses among numbers that nmtalign computed when it wrote them; it computes no quantity of a model.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const names = data.models.map((model) => model.name);
const at = { sentence: 0, word: 0, step: 0, stage: 4, bucket: 0, preset: -1 };
const still = matchMedia("(prefers-reduced-motion: reduce)");
let playing = 0;

function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function draw(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const quoted = (word) => `“${word}”`;
const fixed = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
const small = (value) => (value > 0 && value < 0.001 ? "< 0.001" : fixed(value, 3));
const percent = (value) => (value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(100 * value)} %`);
const here = () => data.sentences[at.sentence];
const count = (s) => `${s.source.length - 1} words`;

function log(text) {
  const list = $("log");
  if (list.lastChild?.textContent === text) return;
  list.append(make("li", {}, text));
  while (list.children.length > 100) list.firstChild.remove();
  list.scrollTop = list.scrollHeight;
}

function bar(share, tall) {
  const made = make("span", { class: "bar", "aria-hidden": "true" });
  made.style[tall ? "height" : "width"] = `${100 * Math.min(1, share)}%`;
  return made;
}

function strip(bytes, row, units) {
  const canvas = make("canvas", { width: units, height: 1, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  for (let k = 0; k < units; k++) {
    const value = bytes[row * units + k] / 127;
    pen.fillStyle = value < 0 ? `rgba(224, 106, 20, ${-value})` : `rgba(38, 120, 225, ${value})`;
    pen.fillRect(k, 0, 1, 1);
  }
  return canvas;
}

function unpack(text, rows) {
  const bytes = Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return { bytes, units: bytes.length / rows };
}

function strips(parts, rows, kind = "strips") {
  const box = make("div", { class: kind });
  for (let row = 0; row < rows; row++) for (const one of parts) box.append(strip(one.bytes, row, one.units));
  return box;
}

function showModels() {
  const s = here(), rows = s.source.length;
  const plain = make("div", { class: "card plain" }, make("h3", {}, "Source"), make("p", { class: "sentence", dir: "auto" },
    s.source.slice(0, -1).join(" ")));
  if (s.reference !== null) plain.append(make("h3", {}, "Reference"), make("p", { class: "sentence", dir: "auto" }, s.reference));
  $("models").replaceChildren(plain, ...names.map((name) => {
    const result = s[name], attends = name === "RNNsearch", text = make("p", { class: "sentence", dir: "auto" });
    result.words.forEach((word, k) => {
      text.append(result.kept?.[k] === false ? make("span", { class: "lost" }, word) : word, " ");
    });
    const drawn = attends
      ? strips([unpack(s.forward.units, rows)], rows)
      : strips([unpack(result.vector, 1)], 1, "strips one");
    const size = attends
      ? `${rows} annotations (one per word and </s>): ${result.size.toLocaleString("en")} numbers`
      : `One fixed vector: ${result.size.toLocaleString("en")} numbers, whatever the length`;
    const card = make("div", { class: `card ${name}` }, make("h3", {}, name), make("p", {}, size), drawn, text);
    if (result.kept) {
      const wrong = result.kept.filter((kept) => !kept).length;
      card.append(make("p", { class: "quiet" }, `${wrong} of ${result.kept.length} words are not in the reference` +
        `${wrong ? " (wavy line)" : ""}. Log-probability of the reference: ${fixed(result.reference_log_prob)} nats.`));
    }
    return card;
  }));
  $("fades").hidden = !s.RNNencdec;
  const most = Math.max(...data.sentences.flatMap((one) => one.RNNencdec?.changes ?? [1]));  // one scale for all lengths
  $("fading").replaceChildren(...(s.RNNencdec?.changes ?? []).map((change, k) => make("li", {},
    make("span", { class: "track" }, bar(change / most, true)), make("span", { dir: "auto" }, s.source[k]), make("br", {}),
    make("span", { class: "number" }, s.unknown[k] ? "unknown" : fixed(change)))));
  if (s.RNNencdec) $("fading-mean").textContent = `Mean of this sentence: ${fixed(s.RNNencdec.mean_change)}. ${
    s.unknown.some(Boolean) ? "Words that the model does not know are <unk> already." : ""}`;
}

function showSentence(say = true) {
  const s = here(), last = s.source.length - 1;
  $("length").value = at.sentence;
  $("length").setAttribute("aria-valuetext", `${count(s)}: ${s.source.slice(0, -1).join(" ")}`);
  $("length-value").textContent = count(s);
  $("origin").textContent = s.name + (s.source.join().includes("▁") ? " · ▁ begins a word; the models read pieces of words." : "");
  Object.assign($("word"), { max: last - 1, value: Math.min(at.word, last - 1) });
  Object.assign($("step"), { max: s.target.length - 1, value: Math.min(at.step, s.target.length - 1) });
  at.word = +$("word").value;
  at.step = +$("step").value;
  showModels();
  showAnnotations();
  showStep();
  if (!say) return;
  for (const name of names) {
    log(`${name} read ${count(s)} and wrote ${quoted(s[name].words.join(" "))} (log-probability ${fixed(s[name].log_prob, 3)}).`);
  }
}

function showAnnotations() {
  const s = here(), rows = s.source.length, word = s.source[at.word];
  $("word-value").textContent = `${at.word + 1}. ${word}`;
  $("word").setAttribute("aria-valuetext", `${word}, word ${at.word + 1} of ${rows - 1}`);
  const ways = [s.forward, s.backward].map((way) => ({ ...unpack(way.units, rows), changes: way.changes[at.word] }));
  $("annotated").tBodies[0].replaceChildren(...s.source.map((one, j) => make("tr", j === at.word ? { class: "chosen" } : {},
    make("th", { scope: "row", dir: "auto" }, one), ...ways.map((way) => make("td", {}, make("div", {},
      make("span", { class: "number" }, fixed(way.changes[j], 3)), make("span", {}, strip(way.bytes, j, way.units),
        bar(way.changes[j] / Math.max(1, ...way.changes)))))))));
  $("units").textContent = `Drawn are ${ways[0].units} of the ${data.models[0].hidden} numbers of each direction.`;
}

function sayAnnotations() {
  const s = here(), unread = (way) => way.changes[at.word].filter((change) => change === 0).length;
  log(`${quoted(s.source[at.word])} became <unk>: ${unread(s.forward)} forward and ${unread(s.backward)} backward annotations ` +
    "did not change, because they do not read this word.");
}

const stages = [
  ["Energies", (step) => `The state of the decoder is compared with each annotation. The energies are from ${
    fixed(Math.min(...step.energies))} to ${fixed(Math.max(...step.energies))}.`],
  ["Softmax", (step) => `The exponential of each energy, relative to the largest one. The sum is ${fixed(step.sum, 3)}.`],
  ["Weights", (step) => `Divided by the sum, they are the weights: the largest is ${fixed(Math.max(...step.weights))}. The entropy is ${
    fixed(step.entropy)} nats.`],
  ["Context", (step, word) => `The context is the sum of the annotations by their weights: ${
    percent(Math.max(...step.weights))} of it is that of ${quoted(word)}.`],
  ["Next word", (step, word, target) => `From state and context, ${quoted(target)} gets the probability ${small(step.probability)}.`],
];

function showStep() {
  const s = here(), step = s.steps[at.step], target = s.target[at.step];
  const largest = step.weights.indexOf(Math.max(...step.weights));
  $("step-value").textContent = `${at.step + 1} of ${s.target.length}: ${target}`;
  $("step").setAttribute("aria-valuetext", `${target}, target word ${at.step + 1} of ${s.target.length}`);
  $("written").replaceChildren(...s.target.flatMap((word, k) =>
    [make("span", { class: k === at.step ? "current" : k > at.step ? "later" : "" }, word), " "]));
  [...$("stages").children].forEach((one, k) => k < 5 && one.setAttribute("aria-pressed", k === at.stage));
  $("stage-note").textContent = stages[at.stage][1](step, s.source[largest], target);
  const low = Math.min(0, ...step.energies), high = Math.max(0, ...step.energies), zero = -low / (high - low || 1);
  const cells = (j) => {
    const energy = make("div", { class: "signed", "aria-hidden": "true" }, bar(Math.abs(step.energies[j]) / (high - low || 1)),
      make("span", { class: "zero" }));
    energy.firstChild.style.left = `${100 * Math.min(zero, zero + step.energies[j] / (high - low || 1))}%`;
    energy.lastChild.style.left = `${100 * zero}%`;
    return [[fixed(step.energies[j]), energy], [small(step.exponentials[j]), bar(step.exponentials[j])],
      [small(step.weights[j]), bar(step.weights[j])]];
  };
  $("energies").tBodies[0].replaceChildren(...s.source.map((word, j) => make("tr", j === largest && at.stage > 1 ? { class: "chosen" }
    : {}, make("th", { scope: "row", dir: "auto" }, word), ...cells(j).map(([number, drawn], k) => make("td", {}, make("div",
      k > at.stage ? { hidden: "" } : {}, make("span", { class: "number" }, number), make("span", {}, drawn)))))));
  $("entropy").hidden = at.stage < 2;
  $("entropy").textContent = `Entropy of the weights: ${fixed(step.entropy)} nats; it would be ${
    fixed(s.most_entropy)} nats if all ${s.source.length} weights were equal.`;
  $("context-part").hidden = at.stage < 3;
  $("context").replaceChildren(...step.weights.map((weight, j) => {
    const part = make("span", { title: `${s.source[j]}: ${percent(weight)}` }, weight > 0.06 ? `${s.source[j]} ${percent(weight)}` : "");
    part.style.width = `${100 * weight}%`;
    part.style.background = `hsl(${(j * 67 + 205) % 360} 65% ${j % 2 ? 82 : 74}%)`;
    return part;
  }));
  $("context").setAttribute("aria-label", "Context: " + step.weights.map((weight, j) => [weight, j]).filter(([weight]) =>
    weight >= 0.01).sort((a, b) => b[0] - a[0]).map(([weight, j]) => `${percent(weight)} ${s.source[j]}`).join(", "));
  $("next-part").hidden = at.stage < 4;
  $("next").tBodies[0].replaceChildren(...step.top.map(([word, p]) => make("tr", word === target ? { class: "chosen" } : {},
    make("th", { scope: "row", dir: "auto" }, word), make("td", {}, make("div", {}, make("span", { class: "number" }, small(p)),
      make("span", {}, bar(p)))))));
  showMap();
}

function sayStep() {
  const s = here(), step = s.steps[at.step], largest = step.weights.indexOf(Math.max(...step.weights));
  log(`Step ${at.step + 1}, ${stages[at.stage][0].toLowerCase()}: ${stages[at.stage][1](step, s.source[largest], s.target[at.step])}`);
}

function showMap() {
  const s = here(), columns = s.source.length, rows = s.target.length, room = $("map").clientWidth || 600;
  const longest = (words) => Math.max(...words.map((word) => word.length));
  const left = Math.min(150, 8 * longest(s.target) + 12), top = Math.min(140, 8 * longest(s.source) + 12);
  const size = Math.max(13, Math.min(52, Math.floor((room - left - 4) / columns)));
  const svg = draw("svg", { width: left + size * columns + 4, height: top + size * rows + 4, role: "img",
    "aria-label": `Heat map of ${rows} target words and ${columns} source words; the table below has the same weights` });
  s.source.forEach((word, j) => svg.append(draw("text", { "text-anchor": "start", class: size < 16 ? "small" : "",
    transform: `translate(${left + size * (j + 0.65)} ${top - 6}) rotate(-${size < 24 ? 90 : 55})` }, word)));
  s.target.forEach((word, t) => {
    const y = top + size * t;
    svg.append(draw("text", { x: left - 6, y: y + size / 2 + 4, "text-anchor": "end", class: size < 16 ? "small" : "" }, word));
    s.steps[t].weights.forEach((weight, j) => {
      const cell = draw("rect", { x: left + size * j, y, width: size, height: size, class: "cell", "fill-opacity": weight,
        "data-step": t });
      cell.append(draw("title", {}, `${word} reads ${s.source[j]}: ${small(weight)}`));
      svg.append(cell);
      if (size > 26 && weight >= 0.1) svg.append(draw("text", { x: left + size * (j + 0.5), y: y + size / 2 + 4, "data-step": t,
        "text-anchor": "middle", class: `small cell-value ${weight > 0.75 ? "high" : weight > 0.55 ? "mid" : ""}` }, fixed(weight)));
    });
  });
  svg.append(draw("rect", { x: left, y: top + size * at.step, width: size * columns, height: size, class: "row-frame" }));
  const links = s.phrase, from = links.map(([j]) => j), to = links.map(([, t]) => t);
  if (links.length) svg.append(draw("rect", { x: left + size * Math.min(...from), y: top + size * to[0], class: "phrase-frame",
    width: size * (Math.max(...from) - Math.min(...from) + 1), height: size * to.length }));
  svg.addEventListener("click", (event) => event.target.dataset.step && setStep(+event.target.dataset.step));
  $("map").replaceChildren(svg);
  $("phrase").textContent = links.length
    ? `Reordered phrase (dashed frame): ${quoted(to.map((t) => s.target[t]).join(" "))} reads ${
      links.map(([j]) => s.source[j]).join(", then ")}, from right to left.`
    : "No phrase of this sentence is read from right to left.";
  $("weights").replaceChildren(make("caption", {}, "Weights: a row per target word, a column per source word"),
    make("thead", {}, make("tr", {}, make("td", {}), ...s.source.map((word) => make("th", { scope: "col" }, word)))),
    make("tbody", {}, ...s.target.map((word, t) => make("tr", {}, make("th", { scope: "row" }, word),
      ...s.steps[t].weights.map((weight) => make("td", {}, fixed(weight)))))));
}

function setStep(step, stage = at.stage) {
  at.step = step;
  at.stage = stage;
  $("step").value = step;
  showStep();
  sayStep();
}

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(() => {
    const end = at.stage === 4 && at.step === here().target.length - 1;
    if (end) play(false);
    else setStep(at.stage === 4 ? at.step + 1 : at.step, (at.stage + 1) % 5);
  }, still.matches ? 3500 : 2200) : 0;
  $("play").textContent = on ? "Pause" : "Play";
}

function showBleu() {
  const buckets = data.bleu.buckets, wide = Math.max(260, $("bleu").clientWidth), high = 290, left = 34, bottom = 250;
  const x = (k) => left + 14 + ((wide - left - 40) * k) / Math.max(1, buckets.length - 1);
  const highest = 20 * Math.ceil(Math.max(20, ...buckets.flatMap((one) => names.map((name) => one[name]))) / 20);
  const y = (score) => bottom - (score * (bottom - 30)) / highest, focused = document.activeElement?.id === "marker";
  const svg = draw("svg", { width: wide, height: high });
  for (let score = 0; score <= highest; score += highest / 5) {
    svg.append(draw("line", { x1: left, x2: wide, y1: y(score), y2: y(score), class: "axis" }));
    svg.append(draw("text", { x: left - 6, y: y(score) + 4, "text-anchor": "end", class: "small" }, score));
  }
  const every = Math.ceil((buckets.length * 44) / (wide - left));
  buckets.forEach((one, k) => k % every || svg.append(draw("text", { x: x(k), y: bottom + 18, "text-anchor": "middle",
    class: "small" }, one.words)));
  svg.append(draw("text", { x: wide - 4, y: bottom + 36, "text-anchor": "end", class: "small" }, "words of the source"));
  names.forEach((name, row) => {
    svg.append(draw("polyline", { points: buckets.map((one, k) => `${x(k)},${y(one[name])}`).join(" "), class: `${name}-line` }));
    buckets.forEach((one, k) => svg.append(draw("circle", { cx: x(k), cy: y(one[name]), r: k === at.bucket ? 6 : 4, class: `${name}-dot` })));
    svg.append(draw("line", { x1: left + 110 * row, x2: left + 110 * row + 26, y1: 14, y2: 14, class: `${name}-line` }),
      draw("text", { x: left + 110 * row + 32, y: 18 }, name));
  });
  const marker = draw("g", { id: "marker", role: "slider", tabindex: 0, "aria-label": "Length of the source", "aria-valuemin": 1,
    "aria-valuemax": buckets.length, "aria-orientation": "horizontal", transform: `translate(${x(at.bucket)} 0)` });
  marker.append(draw("line", { x1: 0, x2: 0, y1: 26, y2: bottom }), draw("rect", { x: -9, y: bottom - 6, width: 18, height: 12, rx: 4 }));
  marker.setAttribute("aria-valuenow", at.bucket + 1);
  marker.setAttribute("aria-valuetext", bleuText());
  const nearest = (event) => {
    const place = event.clientX - $("bleu").getBoundingClientRect().left;
    return buckets.reduce((best, _, k) => (Math.abs(x(k) - place) < Math.abs(x(best) - place) ? k : best), 0);
  };
  svg.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    setBucket(nearest(event));
    $("marker").focus();
    const move = (moved) => setBucket(nearest(moved));
    addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => removeEventListener("pointermove", move), { once: true });
  });
  marker.addEventListener("keydown", (event) => {
    const end = buckets.length - 1, moves = { ArrowRight: at.bucket + 1, ArrowUp: at.bucket + 1, ArrowLeft: at.bucket - 1,
      ArrowDown: at.bucket - 1, Home: 0, End: end, PageUp: at.bucket + 3, PageDown: at.bucket - 3 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    setBucket(Math.max(0, Math.min(end, moves[event.key])));
  });
  svg.append(marker);
  $("bleu").replaceChildren(svg);
  if (focused) marker.focus();
  $("bleu-value").textContent = bleuText();
}

function bleuText() {
  const one = data.bleu.buckets[at.bucket];
  return `${one.words} words (${one.sentences} sentences): ${names.map((name) => `${name} ${fixed(one[name])} BLEU`).join(", ")}.`;
}

function setBucket(bucket) {
  if (bucket === at.bucket) return;
  at.bucket = bucket;
  showBleu();
  log(bleuText());
}

function choosePreset(k) {
  const preset = data.presets[k];
  const part = { "Agreement at a distance": "motion", "Fixed vector": "bottleneck" }[preset.name] ?? "map-part";
  $("note").replaceChildren(preset.example === null ? `There is no such sentence: ${preset.note}.` : `${preset.note} `);
  log(`${preset.name}: ${$("note").textContent}`);
  if (preset.example === null) return;
  $("note").append(make("a", { href: `#${part}` }, "See it below"));
  [...$("presets").children].forEach((one, n) => one.setAttribute("aria-pressed", n === k));
  Object.assign(at, { sentence: preset.example, step: preset.step, word: 0, stage: 4 });
  showSentence();
  sayStep();
}

function start() {
  $("facts").textContent = data.models.map((model) => `${model.name}: ${model.folder} (${model.direction}, ${model.hidden} units, ${
    model.parameters.toLocaleString("en")} parameters, SHA-256 ${model.hash}…)`).join(" · ") + ` · test set: ${data.test} · nmtalign ${data.version}`;
  data.presets.forEach((preset, k) => {
    const button = make("button", { type: "button", "aria-pressed": "false" }, preset.name);
    if (preset.example === null) button.setAttribute("aria-disabled", "true");
    button.addEventListener("click", () => choosePreset(k));
    $("presets").append(button);
  });
  stages.forEach(([name], k) => {
    const button = make("button", { type: "button" }, `${k + 1}. ${name}`);
    button.addEventListener("click", () => setStep(at.step, k));
    $("stages").append(button);
  });
  $("stages").append(make("button", { type: "button", id: "play" }, "Play"));
  $("play").addEventListener("click", () => play(!playing));
  $("length").max = data.sentences.length - 1;
  const follow = (id, field, show, say) => {
    $(id).addEventListener("input", () => { at[field] = +$(id).value; show(); });
    $(id).addEventListener("change", say);
  };
  follow("length", "sentence", () => showSentence(false), () => showSentence());
  follow("word", "word", showAnnotations, sayAnnotations);
  follow("step", "step", showStep, sayStep);
  const scores = [...data.bleu.buckets, data.bleu.all];
  $("scores").append(make("caption", {}, "BLEU by number of source words"), make("thead", {}, make("tr", {}, ...["Words", "Sentences",
    ...names].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...scores.map((one) => make("tr", {},
    make("th", { scope: "row" }, one.words), make("td", {}, String(one.sentences)), ...names.map((name) => make("td", {}, fixed(one[name])))))));
  $("signature").textContent = `sacreBLEU: ${data.bleu.signature}. Buckets of few sentences vary a lot.`;
  showBleu();
  choosePreset(Math.max(0, data.presets.findIndex((preset) => preset.example !== null)));
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; showMap(); showBleu(); } });
  document.documentElement.dataset.ready = "1";
}

start();
