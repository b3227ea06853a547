// --- player: steps from word to word automatically ---

const SPEEDS = [1, 2, 4, 0.5]; // 1 is one word per PACE
const PACE = 1100; // milliseconds

class Player {
  /** `step` selects the next word and returns whether there was one; `changed` is called when playing starts or ends. */
  constructor(step, changed) {
    this.step = step;
    this.changed = changed;
    this.timer = 0;
    this.speed = SPEEDS[0];
  }

  get playing() {
    return this.timer !== 0;
  }

  start() {
    this.stop();
    this.timer = setInterval(() => this.step() || this.stop(), PACE / this.speed);
    this.changed();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.changed();
  }

  nextSpeed() {
    this.speed = SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length];
    if (this.playing) this.start();
    else this.changed();
  }
}
