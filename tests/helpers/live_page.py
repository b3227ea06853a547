"""Runs the model of a live page with node: the page's own code and its own data, without a browser."""

import json
import shutil
import subprocess

NODE = shutil.which("node")
_DRIVER = r"""
const [page, requests] = process.argv.slice(1).map((path) => require("fs").readFileSync(path, "utf8"));
const stored = (kind) => [...page.matchAll(new RegExp(`data-kind="${kind}">([^<]*)<`, "g"))].map((one) => one[1]);
const script = page.match(/<script>("use strict"[^]*?)<\/script>/)[1], start = script.indexOf("function liveEngine()");
const text = script.slice(start, script.indexOf("\n}\n", start) + 3);
const engine = new Function(`"use strict"; ${text} return liveEngine();`)();
const weights = stored("live-weights");
stored("live-model").forEach((model, k) => engine.load({ model: JSON.parse(model), weights: weights[k] }));
const plain = (key, value) => (ArrayBuffer.isView(value) ? [...value] : value);
const answers = JSON.parse(requests).map(({ name, ...request }) => engine[name](request));
process.stdout.write(JSON.stringify(answers, plain));
"""


def ask(page, requests):
    """The answers of the model of a page; `name` of a request is the function that it calls."""
    asked = page.with_suffix(".requests.json")
    asked.write_text(json.dumps(requests))
    command = [str(NODE), "-e", _DRIVER, str(page), str(asked)]
    found = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)
