// --- curves: soft links painted on a canvas, hard and gold links as SVG ---

const FAINTEST = 0.03; // smaller weights have no curve
const SLIDE = 280; // milliseconds that weights take from one word to the next
const SVG = "http://www.w3.org/2000/svg";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const eased = (t) => 1 - (1 - t) ** 3;
const between = (a, b, t) => a + (b - a) * t;

/** The control points of a curve between two ends; it leaves each line of words at a right angle. */
function bend(from, to, across) {
  if (across) return [(from.x + to.x) / 2, from.y, (from.x + to.x) / 2, to.y];
  return [from.x, (from.y + to.y) / 2, to.x, (from.y + to.y) / 2];
}

function curveText(from, to, across) {
  const [ax, ay, bx, by] = bend(from, to, across);
  return `M${from.x},${from.y}C${ax},${ay} ${bx},${by} ${to.x},${to.y}`;
}

/** The weights of one word: its place, and its weights for the words of the other side. */
function focusOf(alignment, selection, ends) {
  const { x, y, extent } = ends[selection.side][selection.index];
  return { side: selection.side, x, y, extent, weights: alignment.weightsOf(selection) };
}

function mixed(from, to, t) {
  return {
    side: to.side,
    x: between(from.x, to.x, t),
    y: between(from.y, to.y, t),
    extent: between(from.extent, to.extent, t),
    weights: to.weights.map((weight, other) => between(from.weights[other] ?? 0, weight, t)),
  };
}

class Curves {
  constructor(canvas, svg) {
    this.canvas = canvas;
    this.svg = svg;
    this.focus = null;
    this.frame = 0;
  }

  /** Takes a new sentence, or new places of its words: `ends` has {x, y, extent} of each word, by side. */
  lay(alignment, ends, across, size) {
    Object.assign(this, { alignment, ends, across, size });
    const scale = Math.min(devicePixelRatio || 1, 2);
    this.canvas.width = Math.min(size.width * scale, 16000);
    this.canvas.height = Math.min(size.height * scale, 16000);
    Object.assign(this.canvas.style, { width: `${size.width}px`, height: `${size.height}px` });
    this.svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    Object.assign(this.svg.style, { width: `${size.width}px`, height: `${size.height}px` });
    cancelAnimationFrame(this.frame);
    this.focus = null;
  }

  /** Slides to the weights of a word, or to none. */
  slide(selection, soft) {
    cancelAnimationFrame(this.frame);
    this.soft = soft;
    const goal = selection ? focusOf(this.alignment, selection, this.ends) : null;
    const start = this.focus;
    if (!goal || !start || start.side !== goal.side || calm.matches) {
      this.focus = goal;
      this.paint();
      return;
    }
    const begun = performance.now();
    const step = (now) => {
      const t = Math.min(Math.max((now - begun) / SLIDE, 0), 1);
      this.focus = t < 1 ? mixed(start, goal, eased(t)) : goal;
      this.paint();
      if (t < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  paint() {
    const pen = this.canvas.getContext("2d");
    pen.setTransform(this.canvas.width / this.size.width, 0, 0, this.canvas.height / this.size.height, 0, 0);
    pen.clearRect(0, 0, this.size.width, this.size.height);
    if (!this.soft || !this.alignment.cells) return;
    const colour = getComputedStyle(this.canvas).getPropertyValue("--soft");
    pen.strokeStyle = pen.fillStyle = colour;
    this.paintAll(pen, this.focus ? 0.16 : 0.9);
    if (this.focus) this.paintFocus(pen);
    pen.globalAlpha = 1;
  }

  /** Draws all weights: the opacity of a curve is its weight. */
  paintAll(pen, strength) {
    const { source, target } = this.ends;
    for (let j = 0; j < target.length; j++) {
      for (let i = 0; i < source.length; i++) {
        const weight = this.alignment.weight(j, i);
        if (weight < FAINTEST) continue;
        pen.globalAlpha = weight * strength;
        pen.lineWidth = 1 + 2.5 * weight;
        pen.beginPath();
        pen.moveTo(source[i].x, source[i].y);
        pen.bezierCurveTo(...bend(source[i], target[j], this.across), target[j].x, target[j].y);
        pen.stroke();
      }
    }
  }

  /** Draws the weights of one word as ribbons side by side; the width of a ribbon is its weight. */
  paintFocus(pen) {
    const { focus } = this;
    const others = this.ends[focus.side === "target" ? "source" : "target"];
    const total = Math.max(1, focus.weights.reduce((sum, weight) => sum + weight, 0));
    const inOrder = focus.weights.map((_, other) => other);
    const along = (end) => (this.across ? end.y : end.x);
    inOrder.sort((a, b) => along(others[a]) - along(others[b]));
    let begin = -focus.extent / 2;
    for (const other of inOrder) {
      const weight = focus.weights[other];
      const width = (focus.extent * weight) / total;
      if (weight > 1 / 255) this.paintRibbon(pen, this.shifted(focus, begin + width / 2), width, others[other], weight);
      begin += width;
    }
  }

  shifted(end, by) {
    return this.across ? { x: end.x, y: end.y + by } : { x: end.x + by, y: end.y };
  }

  paintRibbon(pen, from, width, to, weight) {
    const far = Math.max(to.extent * weight, 1);
    const near = Math.max(width, 1);
    const [a, b] = [this.shifted(from, -near / 2), this.shifted(from, near / 2)];
    const [c, d] = [this.shifted(to, far / 2), this.shifted(to, -far / 2)];
    pen.globalAlpha = 0.18 + 0.62 * weight;
    pen.beginPath();
    pen.moveTo(a.x, a.y);
    pen.lineTo(b.x, b.y);
    pen.bezierCurveTo(...bend(b, c, this.across), c.x, c.y);
    pen.lineTo(d.x, d.y);
    pen.bezierCurveTo(...bend(d, a, this.across), a.x, a.y);
    pen.fill();
  }

  /** Draws the hard links and, under them, the gold ones; those of the selected word stand out. */
  link(shown, selection) {
    const { alignment } = this;
    const lines = [];
    if (shown.gold && alignment.possible) {
      const sure = keysOf(alignment.sure);
      for (const link of alignment.possible) lines.push(this.line(link, sure.has(`${link}`) ? "sure" : "possible"));
    }
    if (shown.hard) {
      const right = shown.gold && alignment.possible ? keysOf(alignment.possible) : null;
      for (const link of alignment.links) lines.push(this.line(link, right && !right.has(`${link}`) ? "wrong" : "right"));
    }
    this.svg.replaceChildren(...lines);
    this.emphasise(selection);
  }

  line([source, target], kind) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", curveText(this.ends.source[source], this.ends.target[target], this.across));
    path.setAttribute("class", `link ${kind}`);
    if (kind !== "possible") path.setAttribute("pathLength", 1);
    Object.assign(path.dataset, { source, target });
    return path;
  }

  emphasise(selection) {
    for (const path of this.svg.children) {
      path.classList.toggle("dim", selection !== null && Number(path.dataset[selection.side]) !== selection.index);
    }
  }
}

const keysOf = (links) => new Set(links.map(String));
