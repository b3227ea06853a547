/* The lesson. It only chooses among numbers that nmtalign computed when it wrote the page. */

const lesson = JSON.parse(stored("lesson")[0]), systems = ["With attention", "Without attention"];
let sentence = 0, stepSlider = null;

const rowOf = (head, ...cells) =>
  make("tr", {}, make("th", { scope: "row", dir: "auto" }, head), ...cells.map((cell) => make("td", {}, cell)));

function showStep(step) {
  const { source, target, weights, probabilities } = lesson.sentences[sentence];
  const row = weights[step], largest = Math.max(...row);
  $("energies").tBodies[0].replaceChildren(...source.map((word, s) => rowOf(word,
    row[s] ? fixed(Math.log(row[s] / largest)) : "−∞", fixed(row[s], 3), bar(row[s], percent(row[s])))));
  $("written").textContent = `The context is the sum of the annotations by their weights: ${percent(largest)} of it is that of “${
    source[row.indexOf(largest)]}”. From the context and its state the model writes “${target[step]}” with the probability ${
    fixed(probabilities[step])}.`;
  $("map").replaceChildren(attention(source, target, (t, s) => weights[t][s], {}, { side: "target", index: step }));
}

function showSentence(number) {
  sentence = number;
  const { name, source, target, reference, texts, changes } = lesson.sentences[sentence];
  const card = (head, ...words) => make("div", { class: "card" }, make("h3", {}, head), make("p", { class: "words", dir: "auto" }, ...words));
  $("texts").replaceChildren(card(`Source: ${name}`, source.slice(0, -1).join(" ")), card("Reference", reference),
    ...texts.map(({ words, kept }, k) => {
      const wrong = kept.filter((one) => !one).length;
      const made = card(systems[k], ...words.flatMap((word, w) => [kept[w] ? word : make("mark", { class: "wrong" }, word), " "]));
      made.append(make("p", { class: "quiet" }, `${wrong} of ${words.length} words are not in the reference.`));
      return made;
    }));
  stepSlider = slider("Target word", target.length - 1, (step) => `${step + 1} of ${target.length}: ${target[step]}`, showStep);
  $("step").replaceChildren(stepSlider.element);
  showStep(0);
  $("fixed").hidden = !changes;
  if (!changes) return;
  const most = Math.max(...lesson.sentences.flatMap((one) => one.changes));
  $("changes").tBodies[0].replaceChildren(...changes.map((change, s) => rowOf(source[s], fixed(change), bar(change / most))));
  $("mean").textContent = `Mean of this sentence of ${changes.length} words: ${
    fixed(changes.reduce((a, b) => a + b, 0) / changes.length)}.`;
}

$("facts").textContent = lesson.models.join(" · ");
const lengthSlider = slider("Length of the source", lesson.sentences.length - 1,
  (number) => `${lesson.sentences[number].source.length - 1} words`, (number) => { $("note").textContent = ""; showSentence(number); });
$("length").append(lengthSlider.element);
$("preset").append(...lesson.presets.map(([name], k) => make("option", { value: k }, name)));
const choose = () => {
  const [, note, number] = lesson.presets[$("preset").value];
  $("note").textContent = note;
  lengthSlider.set(number);
  showSentence(number);
};
$("preset").addEventListener("change", choose);
choose();
document.documentElement.dataset.ready = "1";
