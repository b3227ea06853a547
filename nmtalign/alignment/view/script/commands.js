// --- commands: the functions of keys and buttons, by name ---

/** Returns functions by name; they act on `app`. */
function commandsOf(app) {
  const inColumns = () => app.panes[0]?.layout === "columns";
  return {
    ...wordCommands(app, inColumns),
    ...drawingCommands(app),
    search: () => app.finder.focus(),
    "sentence-on": () => app.open(app.finder.list.neighbour(1)),
    "sentence-back": () => app.open(app.finder.list.neighbour(-1)),
    "entry-on": () => app.chooseEntry(app.entry + 1),
    "entry-back": () => app.chooseEntry(app.entry - 1),
    compare: () => app.compare(),
    theme: () => app.turnTheme(),
    help: () => find("help").showModal(),
  };
}

function wordCommands(app, inColumns) {
  return {
    "word-on": () => app.step(1),
    "word-back": () => app.step(-1),
    "word-right": () => app.step(app.backwards() ? -1 : 1),
    "word-left": () => app.step(app.backwards() ? 1 : -1),
    "word-first": () => app.step(-Infinity),
    "word-last": () => app.step(Infinity),
    up: () => (inColumns() ? app.step(-1) : app.goTo("source")),
    down: () => (inColumns() ? app.step(1) : app.goTo("target")),
    "side-source": () => app.goTo("source"),
    "side-target": () => app.goTo("target"),
    clear: () => app.clear(),
    play: () => app.playOrPause(),
    speed: () => app.player.nextSpeed(),
  };
}

function drawingCommands(app) {
  return {
    soft: () => app.toggle("soft"),
    hard: () => app.toggle("hard"),
    gold: () => app.toggle("gold"),
    matrix: () => app.toggle("matrix"),
    layout: () => app.nextLayout(),
  };
}
