/* The live page: it asks the model in live_model.js, and shows the answers. */

const live = JSON.parse(stored("live")[0]), began = performance.now();
const WAIT = 250; // milliseconds after the last key
const isWord = (token) => token !== "</s>" && /[\p{L}\p{N}]/u.test(token);
const isBlank = (answer) => answer.source.length === 1; // only </s>
const quoted = (token) => `“\u2068${token}\u2069”`; // isolated: what follows a word from right to left stays behind it

/* Everything that a translation depends on. `forced` are the ids of the first words, `weights` those of a step that the
   reader has set. `hidden` is the target word whose weights are to be guessed. */
const now = { text: "", forced: [], weights: {}, step: 0, answer: null, hidden: null, version: 0 };

/* Asks the model: in a worker, so that the page never waits, or here if the browser has none for a file. */
const ask = (() => {
  const waiting = new Map();
  let worker = null, engine = null, last = 0;
  const settle = (id, act) => {
    const asked = waiting.get(id);
    waiting.delete(id);
    if (asked) act(asked);
  };
  const answerHere = (id) => setTimeout(() => settle(id, ({ name, request, resolve, reject }) => {
    try { resolve(engine[name](request)); } catch (error) { reject(error); }
  }));
  const fallBack = () => {
    [worker, engine] = [null, engine ?? liveEngine()];
    for (const id of waiting.keys()) answerHere(id);
  };
  const code = `"use strict"; const engine = (${liveEngine})(); onmessage = ({ data: { id, name, request } }) => {
    try { postMessage({ id, answer: engine[name](request) }); } catch (error) { postMessage({ id, fault: String(error) }); } };`;
  try {
    worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    worker.onerror = (event) => { event.preventDefault(); fallBack(); };
    worker.onmessage = ({ data: { id, answer, fault } }) =>
      settle(id, ({ resolve, reject }) => (fault ? reject(new Error(fault)) : resolve(answer)));
  } catch { fallBack(); }
  return (name, request) => new Promise((resolve, reject) => {
    const id = ++last;
    waiting.set(id, { name, request, resolve, reject });
    if (worker) worker.postMessage({ id, name, request });
    else answerHere(id);
  });
})();

function note(text) {
  const seconds = (performance.now() - began) / 1000;
  $("log").value += `${seconds.toFixed(1).padStart(7)} s  ${text}\n`;
  $("log").scrollTop = $("log").scrollHeight;
}

const later = (act, wait = WAIT) => {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(act, wait); };
};

/* The decoders that can be chosen: the models, and the one with attention without it. */
const systems = live.models.flatMap(({ attends }, number) => (attends
  ? [{ name: "with attention", number, uniform: false }, { name: "equal weights (attention off)", number, uniform: true }]
  : [{ name: "fixed vector (no attention)", number, uniform: false }]));
const system = () => systems[$("system").value];

/* A row of stripes for a vector; `middle` is the number that is pale. */
function stripes(values, label) {
  const canvas = make("canvas", { class: "stripes", width: values.length, height: 1, role: "img", "aria-label": label, title: label });
  const pen = canvas.getContext("2d"), mark = getComputedStyle(document.documentElement).getPropertyValue("--mark");
  values.forEach((value, k) => {
    pen.fillStyle = value < 0 ? `rgba(228, 87, 46, ${Math.min(1, -value)})` : `rgba(${mark}, ${Math.min(1, value)})`;
    pen.fillRect(k, 0, 1, 1);
  });
  return canvas;
}
const meanOf = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const rowOf = (head, ...cells) =>
  make("tr", {}, make("th", { scope: "row", dir: "auto" }, head), ...cells.map((cell) => make("td", {}, cell)));

/* 1. A sentence */

async function translate(options = {}) {
  const version = ++now.version, { text, forced, weights } = now;
  const { number, uniform } = system(), started = performance.now();
  let answer;
  try {
    answer = await ask("translate", { number, uniform, text, forced, weights, beam: +$("beam").value, tree: true });
  } catch (error) {
    $("status").textContent = `The model cannot translate this: ${error.message}`;
    return;
  }
  if (version !== now.version) return; // a later change has overtaken it
  const before = now.answer;
  now.answer = isBlank(answer) ? null : answer;
  $("explained").hidden = !now.answer;
  if (!now.answer) {
    $("translation").textContent = "";
    $("status").textContent = "Type a sentence.";
    return;
  }
  now.step = Math.min(now.step, answer.target.length - 1);
  $("translation").textContent = answer.text;
  const unknown = answer.source.filter((_, place) => answer.ids[place] === 1);
  $("status").textContent = `Log-probability ${fixed(answer.total)}, ${fixed(-answer.score)} nats per token, in ${
    Math.round(performance.now() - started)} ms.${unknown.length ? ` Unknown to the model: ${unknown.map(quoted).join(", ")}.` : ""}`;
  if (options.event) note(`${options.event}: ${answer.text}`);
  if (!before || before.source.join(" ") !== answer.source.join(" ") || !options.keep) buildStep();
  showStep();
  showTree();
  showExercises();
  showLoss();
  showPair();
}

function restart(event) {
  Object.assign(now, { text: $("text").value, forced: [], weights: {}, step: 0, hidden: null });
  lengthSlider.set(0);
  forgetLengths();
  return translate({ event }).then(showLength);
}

function setText(text, reference = "") {
  $("text").value = text;
  $("reference").value = reference;
}

/* 2. One step */

let stepSlider = null;

function buildStep() {
  const { source, target, annotations } = now.answer, width = annotations[0].length;
  stepSlider = slider("Step", target.length - 1, (step) => `${step + 1} of ${now.answer.target.length}: ${now.answer.target[step]}`,
    (step) => { now.step = step; showStep(); });
  $("step").replaceChildren(stepSlider.element);
  $("weights").tBodies[0].replaceChildren(...source.map((word, place) => {
    const input = make("input", { type: "range", min: 0, max: 100, step: 1, class: "weight", "aria-label": `Weight of ${word}` });
    input.addEventListener("input", () => drag(place, +input.value / 100));
    input.addEventListener("change", () => note(`weight of ${quoted(word)} at step ${now.step + 1} set to ${input.value} %`));
    return rowOf(word, "", "", input, stripes(annotations[place], `Annotation of ${word}, ${width} numbers`));
  }));
}

const retranslate = later(() => translate({ event: "translation", keep: true }), 60);

/* Gives one source word a weight; the other weights share the rest in their proportions. */
function drag(place, weight) {
  const { step, answer } = now, old = now.weights[step] ?? [...answer.steps[step].weights];
  const others = old.reduce((sum, one, k) => (k === place ? sum : sum + one), 0);
  setWeights(old.map((one, k) => (k === place ? weight : (1 - weight) * (others ? one / others : 1 / (old.length - 1)))));
}

function setWeights(weights) {
  const { step, answer } = now;
  keepUntil(step);
  now.forced = answer.numbers.slice(0, step);
  now.weights[step] = weights;
  fillWeights(weights);
  retranslate();
}

const keepUntil = (step) => { now.weights = Object.fromEntries(Object.entries(now.weights).filter(([at]) => at <= step)); };

function force(id, token) {
  keepUntil(now.step);
  now.forced = [...now.answer.numbers.slice(0, now.step), id];
  translate({ event: `${quoted(token)} forced at step ${now.step + 1}` });
}

function fillWeights(weights, energies) {
  const isHidden = now.hidden === now.step;
  [...$("weights").tBodies[0].rows].forEach((row, place) => {
    const [, energy, weight, bar] = row.cells, input = bar.firstChild, share = weights && !isHidden ? 100 * weights[place] : 0;
    if (energies) energy.textContent = isHidden ? "?" : Number.isNaN(energies[place]) ? "–" : fixed(energies[place]);
    weight.textContent = !weights ? "–" : isHidden ? "?" : fixed(weights[place], 3);
    input.disabled = !weights || isHidden || weights.length < 2;
    input.hidden = !weights;
    if (document.activeElement !== input || !now.weights[now.step]) input.value = share;
    input.style.setProperty("--share", `${share}%`);
    input.setAttribute("aria-valuetext", isHidden ? "hidden" : `${Math.round(share)} percent`);
  });
}

function showStep() {
  const { answer, step } = now, { energies, weights, context, state, update, reset, best } = answer.steps[step];
  stepSlider.input.max = answer.target.length - 1;
  stepSlider.set(step);
  fillWeights(weights, energies ?? answer.source.map(() => NaN));
  const vectors = [["Context", context, "the sum of the annotations by their weights"], ["State", state, "what the decoder remembers"],
    ["Update gate", update, "1 takes the new state, 0 keeps the old one"], ["Reset gate", reset, "0 forgets the old state"]];
  $("vectors").replaceChildren(...vectors.map(([name, values, meaning]) => make("div", { class: "vector" },
    make("div", {}, `${name} `, make("span", { class: "quiet" }, values
      ? `${meaning}; mean ${fixed(meanOf(values))}` : "not yet: the first step has no update")),
    values ? stripes(values, `${name}, ${values.length} numbers`) : "")));
  $("next").replaceChildren(...best.map(([token, logProb, id]) => {
    const share = Math.exp(logProb), isChosen = id === answer.numbers[step];
    const button = make("button", { type: "button", "aria-pressed": String(isChosen), dir: "auto" }, token);
    button.addEventListener("click", () => force(id, token));
    return make("li", { class: "choice" }, button, bar(share), make("span", {}, percent(share)));
  }));
  const changed = Object.keys(now.weights).map((at) => `weights of step ${+at + 1}`);
  if (now.forced.length) changed.push(`${now.forced.length} first words are kept`);
  $("changes").textContent = changed.length ? `Changed: ${changed.join(", ")}.` : "";
  $("equal").disabled = !weights || system().uniform;
  showMap();
}

/* 3. The heat map */

function showMap() {
  const { answer: { source, target, steps }, step } = now;
  if (!steps[0].weights) {
    $("map").replaceChildren(make("p", { class: "note" }, "This model has no attention: every step gets the same context."));
    return;
  }
  const weight = (t, s) => (t === now.hidden ? 0 : steps[t].weights[s]);
  $("map").replaceChildren(attention(source, target, weight, {}, { side: "target", index: step }));
}

/* 4. The tree of the search */

const FATES = {
  open: () => "continued.",
  dropped: ({ total, against }) => `not kept, because its total ${fixed(total)} is below ${fixed(against)}, the worst that was kept.`,
  "given up": ({ best, against }) => `given up after this word: ${best === undefined ? "no continuation was good enough"
    : `its best continuation has the total ${fixed(best)}`}, and the worst that was kept has ${fixed(against)}.`,
  finished: ({ score, chosen }) => `finished with the score ${fixed(score)}, its log-probability per token${
    chosen ? ": the best score, so this is the translation." : ", which is not the best."}`,
  stopped: ({ reachable, against }) => `given up at the end: its score could not become better than ${
    fixed(reachable)}, and the best finished one has ${fixed(against)}.`,
};

function showTree() {
  const nodes = now.answer.tree, wide = 96, high = 24, columns = [];
  for (const node of nodes) (columns[node.step] ??= []).push(node);
  const at = new Map();
  for (const column of columns) {
    column.sort((a, b) => (b.chosen ?? false) - (a.chosen ?? false) || (a.fate === "dropped") - (b.fate === "dropped") || b.total - a.total);
    column.forEach((node, row) => at.set(node.id, [8 + wide * node.step, 12 + high * row]));
  }
  const width = wide * columns.length + 16, height = high * Math.max(...columns.map((column) => column.length)) + 12;
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "tree", role: "group", "aria-label": "Tree of the search" });
  for (const node of nodes) {
    if (node.parent < 0) continue;
    const [x, y] = at.get(node.id), [left, top] = at.get(node.parent);
    svg.append(draw("path", { d: `M${left + 80} ${top}C${x - 4} ${top} ${left + 84} ${y} ${x - 2} ${y}`, class: node.chosen ? "edge chosen" : "edge" }));
  }
  const drawn = new Map(), tell = (node) => {
    $("fate").textContent = `Step ${node.step + 1}, ${quoted(node.token)}: p = ${fixed(Math.exp(node.gain), 3)}, total log-probability ${
      fixed(node.total)}${node.forced ? ", forced" : ""}; ${FATES[node.fate](node)}`;
  };
  const focus = (node) => {
    if (!node) return;
    for (const one of drawn.values()) one.setAttribute("tabindex", -1);
    drawn.get(node.id).setAttribute("tabindex", 0);
    drawn.get(node.id).focus();
  };
  for (const node of nodes) {
    const [x, y] = at.get(node.id), short = cut(node.token, 11);
    const fate = node.chosen ? "chosen" : node.fate.replace(" ", "-");
    const element = draw("g", { class: `node ${fate}`, tabindex: node === nodes[0] ? 0 : -1, role: "img",
      "aria-label": `Step ${node.step + 1}, ${node.token}: ${FATES[node.fate](node)}` },
    draw("rect", { x: x - 4, y: y - 10, width: 86, height: 20, rx: 5 }), draw("text", { x, y: y + 4 }, short));
    element.addEventListener("pointerover", () => tell(node));
    element.addEventListener("click", () => focus(node));
    element.addEventListener("focus", () => tell(node));
    element.addEventListener("keydown", (event) => {
      const column = columns[node.step], place = column.indexOf(node);
      const to = { ArrowLeft: nodes[node.parent], ArrowRight: nodes.find((one) => one.parent === node.id),
        ArrowUp: column[place - 1], ArrowDown: column[place + 1] };
      if (!(event.key in to)) return;
      event.preventDefault();
      focus(to[event.key]);
    });
    drawn.set(node.id, element);
    svg.append(element);
  }
  const counts = Object.keys(FATES).map((fate) => [fate === "open" ? "continued" : fate, nodes.filter((node) => node.fate === fate).length]).filter(([, count]) => count);
  $("fate").textContent = `${nodes.length} words were considered: ${counts.map(([fate, count]) => `${count} ${fate}`).join(", ")}.`;
  $("tree").replaceChildren(svg);
}

/* 5. Longer sentences. A part is the sentence, or one that is appended, with a reference. */

const MOST = 6;
let measured = new Map();

function forgetLengths() {
  measured = new Map();
  $("lengths").hidden = true;
}

async function partsOf(count) {
  const others = live.samples.slice(Math.floor(live.samples.length / 3)).filter(([source]) => source !== now.text);
  const parts = [[now.text, $("reference").value], ...others, ...Array(MOST).fill([now.text, $("reference").value])].slice(0, count);
  for (const part of parts.filter(([, reference]) => !reference.trim())) {
    part[1] = (await ask("translate", { number: 0, text: part[0], beam: 1 })).text; // the best that there is to compare with
  }
  return parts;
}

/* The words of a text between spaces, each with the space before it; of a script without spaces, its letters. */
const UNSPACED = String.raw`\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}\p{sc=Tibt}`;
const WORD = new RegExp(String.raw` *[${UNSPACED}]\p{M}*| *[^ ${UNSPACED}]+`, "gu");
const wordsOf = (text) => text.match(WORD) ?? [];
const bareOf = (word) => word.toLowerCase().match(/[\p{L}\p{N}\p{M}]+/gu) ?? [];

/* Whether each word of a text can be paired with an equal word of the reference; each of these serves once. */
function kept(text, reference) {
  const left = new Map();
  for (const word of wordsOf(reference).flatMap(bareOf)) left.set(word, (left.get(word) ?? 0) + 1);
  return wordsOf(text).map((word) => {
    const bare = bareOf(word), isKept = bare.every((one) => left.get(one) > 0);
    for (const one of bare) left.set(one, (left.get(one) ?? 0) - 1);
    return isKept;
  });
}

async function measure(count) {
  const known = measured; // of this sentence and its reference
  if (!known.has(count)) {
    const parts = await partsOf(count), text = parts.map(([source]) => source).join(" ");
    const reference = parts.map(([, target]) => target).join(" ");
    const found = [];
    for (const { number, uniform } of systems) found.push(await ask("translate", { number, uniform, text, beam: 1 }));
    const wanted = wordsOf(reference).filter(isWord).length || 1;
    known.set(count, { text, found: found.map((one) => {
      const own = kept(one.text, reference), words = wordsOf(one.text);
      return { words, own, share: Math.min(1, words.filter((word, k) => own[k] && isWord(word)).length / wanted) };
    }), length: found[0].source.length - 1 });
  }
  return known.get(count);
}

async function showLength() {
  if (!now.answer) return;
  const known = measured, { value } = lengthSlider.input;
  const { text, found } = await measure(+value + 1);
  if (known !== measured || value !== lengthSlider.input.value) return; // a later change has overtaken it
  const card = (head, ...words) => make("div", { class: "card" }, make("h3", {}, head), make("p", { class: "words", dir: "auto" }, ...words));
  $("texts").replaceChildren(card("Source", text), ...found.map(({ words, own, share }, k) => {
    const made = card(systems[k].name, ...words.flatMap((word, w) => (
      own[w] ? [word] : [word.startsWith(" ") ? " " : "", make("mark", { class: "wrong" }, word.trimStart())])));
    made.append(make("p", { class: "quiet" }, `${percent(share)} of the words of the reference are found.`));
    return made;
  }));
}

const lengthSlider = slider("Length of the source", MOST - 1, (place) => (place ? `the sentence and ${place} more` : "the sentence"),
  (place) => { note(`${place} sentences appended`); showLength(); });

async function measureAll() {
  if (!now.answer) return;
  $("measure").disabled = true;
  const table = $("lengths").firstChild;
  table.tHead.replaceChildren(make("tr", {}, make("th", {}, "Tokens"), ...systems.map(({ name }) => make("th", { colspan: 2 }, name))));
  table.tBodies[0].replaceChildren();
  $("lengths").hidden = false;
  for (let count = 1; count <= MOST; count++) {
    const { found, length } = await measure(count);
    table.tBodies[0].append(rowOf(`${length}`, ...found.flatMap(({ share }) => [percent(share), bar(share)])));
  }
  note("all lengths measured");
  $("measure").disabled = false;
}

/* 6. Two sentences */

const cosine = (a, b) => {
  const dot = (x, y) => x.reduce((sum, one, k) => sum + one * y[k], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
};

async function showPair() {
  const text = $("second").value, first = now.answer, { number, uniform } = system();
  const second = first && text.trim() ? await ask("translate", { number, uniform, text, beam: +$("beam").value }) : null;
  if (text !== $("second").value || first !== now.answer) return;
  if (!second || isBlank(second)) {
    $("pair").replaceChildren();
    $("alike").hidden = true;
    return;
  }
  $("pair").replaceChildren(...[first, second].map(({ source, target, steps, text: translation }) => make("div", { class: "card" },
    make("p", { class: "words", dir: "auto" }, translation),
    steps[0].weights ? attention(source, target, (t, s) => (first.steps === steps && t === now.hidden ? 0 : steps[t].weights[s])) : "")));
  const shared = first.source.flatMap((word, a) => {
    const b = second.source.indexOf(word);
    return b < 0 || !isWord(word) || first.source.indexOf(word) !== a ? [] : [`${quoted(word)} ${fixed(cosine(first.annotations[a], second.annotations[b]))}`];
  });
  $("alike").hidden = !shared.length;
  $("alike").textContent = `Cosine of the annotations of words that both have: ${shared.join(", ")}. The annotation of a word also knows its sentence, so it is seldom 1.`;
}

/* 7. Exercises */

function showExercises() {
  const { source, target, steps } = now.answer, options = (words) => words.map((word, k) => make("option", { value: k }, word));
  $("row").replaceChildren(...options(target));
  $("row").value = now.hidden ?? now.step;
  $("guess").replaceChildren(...options(source));
  $("hide").disabled = !steps[0].weights;
  if (now.hidden !== null && now.hidden >= target.length) now.hidden = null;
  showHidden();
}

function showHidden() {
  $("check").disabled = now.hidden === null;
  $("verdict").textContent = now.hidden === null ? "" : `The weights of ${quoted(now.answer.target[now.hidden])} are hidden.`;
}

function hideRow() {
  now.hidden = +$("row").value;
  showHidden();
  note(`row ${now.hidden + 1} hidden`);
  showStep();
  showPair();
}

function checkGuess() {
  const { source, target, steps } = now.answer, weights = steps[now.hidden].weights, guess = +$("guess").value;
  const best = weights.indexOf(Math.max(...weights)), word = target[now.hidden];
  $("verdict").textContent = guess === best ? `Right: ${quoted(word)} reads ${quoted(source[best])} with the weight ${fixed(weights[best])}.`
    : `No: ${quoted(word)} reads ${quoted(source[best])} with the weight ${fixed(weights[best])}; your word has ${fixed(weights[guess])}.`;
  note(`guess ${quoted(source[guess])} for ${quoted(word)}: ${guess === best ? "right" : "wrong"}`);
  Object.assign(now, { step: now.hidden, hidden: null });
  $("check").disabled = true;
  showStep();
  showPair();
}

async function showLoss() {
  const reference = $("reference").value, { text, version } = now, { number, uniform } = system();
  $("nats").hidden = true;
  $("loss").textContent = "";
  if (!reference.trim() || !now.answer) return;
  const own = await ask("loss", { number, uniform, text, reference });
  const yours = await ask("loss", { number, uniform, text, reference, weights: now.weights });
  if (version !== now.version || reference !== $("reference").value) return;
  const sum = ({ logProbs }) => -logProbs.reduce((a, b) => a + b, 0), isChanged = Object.keys(now.weights).length > 0;
  $("loss").textContent = `Loss of the model: ${fixed(sum(own))} nats, ${fixed(sum(own) / own.tokens.length)} per token.${
    isChanged ? ` With your weights: ${fixed(sum(yours))} nats.` : ""}`;
  $("nats").firstChild.tBodies[0].replaceChildren(...own.tokens.map((token, k) =>
    rowOf(token, fixed(-own.logProbs[k]), isChanged ? fixed(-yours.logProbs[k]) : "–")));
  $("nats").hidden = false;
}

/* Examples: of the sentences of the test set, those that show best what happens. */

const FIGURE_3 = "The agreement on the European Economic Area was signed in August 1992 .";

async function findExamples() {
  const found = [], add = (name, text, note = "", reference = "") => found.push({ name, text, note, reference });
  const { ids } = await ask("tokenize", { text: FIGURE_3 });
  if (live.models[0].source === "en" && !ids.includes(1)) add("European Economic Area", FIGURE_3, "Figure 3 of the article: the phrase is read from right to left.");
  const best = {}, better = (name, score, entry) => { if (!(best[name]?.[0] >= score)) best[name] = [score, entry]; };
  for (const [text, reference] of live.samples) {
    const { source, target, steps, text: translation } = await ask("translate", { text, beam: 2 });
    const words = kept(translation, reference), likeness = words.filter(Boolean).length / words.length;
    const links = steps.map(({ weights }, t) => [weights.indexOf(Math.max(...weights)), t]);
    const shown = links.filter(([place, t]) => isWord(source[place]) && isWord(target[t]));
    if (shown.length >= 5 && source.length < 16 && shown.every(([place], k) => !k || place >= shown[k - 1][0])) {
      better("Monotonic", likeness + source.length / 100, [text, "No word has its largest weight further left than the word before it.", reference]);
    }
    let run = shown.slice(0, 1);
    for (const [k, link] of shown.entries()) {
      if (k) run = link[1] === shown[k - 1][1] + 1 && link[0] < shown[k - 1][0] ? [...run, link] : [link];
      if (run.length < 2 || source.length > 16) continue;
      better("Reordered phrase", run.length + likeness, [text, `${quoted(run.map(([, t]) => target[t]).join(" "))} reads ${
        run.map(([place]) => quoted(source[place])).join(", then ")}: from right to left.`, reference]);
    }
    steps.forEach(({ weights }, t) => {
      const order = weights.map((weight, place) => [weight, place]).filter(([weight, place]) => weight > 0.1 && isWord(source[place]));
      order.sort((a, b) => b[0] - a[0]);
      const [first, second] = order, apart = second && Math.abs(first[1] - second[1]);
      if (apart < 3 || !second || !isWord(target[t]) || source.length > 20) return;
      better("Agreement at a distance", apart * second[0] + likeness, [text, `${quoted(target[t])} reads ${quoted(source[first[1]])} (${
        fixed(first[0])}) and, ${apart} words away, ${quoted(source[second[1]])} (${fixed(second[0])}).`, reference]);
    });
    better("Long sentence", source.length, [text, "The longest of the examples.", reference]);
  }
  for (const name of ["Monotonic", "Reordered phrase", "Agreement at a distance", "Long sentence"]) if (best[name]) add(name, ...best[name][1]);
  if (!found.length) return;
  $("preset").append(make("option", { value: "" }, "…"), ...found.map(({ name }, k) => make("option", { value: k }, name)));
  $("presets").hidden = false;
  $("preset").addEventListener("change", () => {
    const chosen = found[$("preset").value];
    $("note").hidden = !chosen?.note;
    if (!chosen) return;
    $("note").textContent = chosen.note;
    setText(chosen.text, chosen.reference);
    restart(`example ${quoted(chosen.name)}`);
  });
}

/* What the reader does. */

const typed = later(() => {
  $("reference").value = "";
  $("note").hidden = true;
  $("preset").value = "";
  restart(`typed ${quoted($("text").value)}`);
});
$("text").addEventListener("input", typed);
$("system").append(...systems.map(({ name }, k) => make("option", { value: k }, name)));
$("system").addEventListener("change", () => restart(`decoder ${system().name}`));
$("beam").addEventListener("change", () => translate({ event: `beam ${$("beam").value}` }));
$("equal").addEventListener("click", () => {
  note(`equal weights at step ${now.step + 1}`);
  setWeights(now.answer.source.map(() => 1 / now.answer.source.length));
});
$("undo").addEventListener("click", () => restart("all changes undone"));
$("other").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("word").value.trim(), { tokens, ids } = await ask("tokenize", { number: system().number, text, side: "target" });
  if (!text || !now.answer) return;
  if (ids.length !== 1 || ids[0] === 1) $("changes").textContent = `${quoted(text)} is not one token that the model knows.`;
  else force(ids[0], tokens[0]);
});
$("length").append(lengthSlider.element);
$("measure").addEventListener("click", measureAll);
$("second").addEventListener("input", later(() => { note(`second sentence ${quoted($("second").value)}`); showPair(); }));
$("hide").addEventListener("click", hideRow);
$("check").addEventListener("click", checkGuess);
$("reference").addEventListener("input", later(() => { forgetLengths(); showLength(); showLoss(); }));
$("copy").addEventListener("click", () => copy($("log").value).then(
  () => { $("copied").textContent = "Copied."; }, () => { $("log").select(); $("copied").textContent = "Press Ctrl+C to copy it."; }));
$("facts").textContent = live.models.map(({ facts }) => facts).join(" · ");

const described = stored("live-model"), weights = stored("live-weights");
Promise.all(described.map((text, k) => ask("load", { model: JSON.parse(text), weights: weights[k] }))).then(async () => {
  const first = live.samples.find(([source]) => wordsOf(source).length >= 6) ?? live.samples.at(-1);
  if (first) setText(...first);
  await restart("page opened");
  document.documentElement.dataset.ready = "1";
  await findExamples();
  document.documentElement.dataset.examples = "1";
}).catch((error) => { $("status").textContent = `The model cannot be loaded: ${error.message}`; });
