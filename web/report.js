// report.js - the report's page: reads its own data, draws it, asks for nothing
// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { run: 0, from: 0, to: 1, sort: "total_s", down: true, metric: 0 };
  const redraws = []; // what is drawn anew when the width or the colours change

  const CAUSES = {
    "device-bound": "The loader keeps up: training takes the time",
    "cpu-bound": "Samples need more CPU time than there is",
    "python-bound": "Python code takes the loader\u2019s time",
    "disk-bound": "Bytes come from storage too slowly",
    "latency-bound": "The loader waits for samples to arrive",
    "collate-bound": "Making batches takes longer than getting samples",
    "main-bound": "The training process itself is busy between steps",
    "tail-bound": "A few slow samples hold up all the others",
    "oversubscribed": "More workers than CPUs, in each other\u2019s way",
    "memory-growth": "Memory grows without end",
    "startup-bound": "Workers take too long to start, or start too often",
    "straggler": "All ranks wait for one",
    "unclear": "Not enough was measured to name a cause",
  };
  const KINDS = {
    setup: "set-up", fetch: "get samples", sample: "get sample", collate: "collate",
    transfer: "transfer", storage: "wait for storage", read: "read", decode: "decode", place: "place samples",
    wait: "wait", train: "train", epoch: "epoch",
  };
  const TASKS = ["storage", "read", "decode", "place"]; // a span of theirs holds many
  const STAGES = [
    ["train", "training", "train"], ["main", "the loop\u2019s own work", "epoch"],
    ["wait_cpu", "waiting: samples\u2019 code", "sample"], ["wait_run", "waiting: for a CPU", "setup"],
    ["wait_blocked", "waiting: disk, network, sleep", "wait"], ["wait_collate", "waiting: collate", "collate"],
    ["wait_order", "waiting: sampler", "epoch"], ["wait_transfer", "waiting: transfer", "transfer"],
    ["wait_read", "waiting: reading", "read"], ["wait_decode", "waiting: decoding", "decode"],
    ["wait_place", "waiting: placing samples", "place"], ["wait_pin", "waiting: pinning", "transfer"],
    ["wait_map", "waiting: map=", "fetch"], ["wait_other", "waiting, cause unknown", "other"],
  ];

  // --- small helpers ---

  const SVG = "http://www.w3.org/2000/svg";
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
      else node.setAttribute(name, value);
    }
    for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const swatch = (kind) => h("span", { class: "sw", style: { background: `var(--${kind})` }, "aria-hidden": "true" });

  function digits(value, count = 3) {
    if (value === 0) return "0";
    const text = Number(value).toPrecision(count);
    return text.includes("e") ? String(Math.round(value)) : String(Number(text));
  }
  const thousands = (value) => Math.round(value).toLocaleString("en-US").replace(/,/g, "\u2009");
  const short = (value) => (value >= 1e6 ? digits(value / 1e6) + "M" : value >= 1e5 ? digits(value / 1e3) + "k" : thousands(value));
  const amount = (value) => (value >= 1e3 ? thousands(value) : digits(value));
  function time(seconds) {
    if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "\u2013";
    if (seconds === 0) return "0 s";
    if (seconds >= 7200) return digits(seconds / 3600) + " h";
    if (seconds >= 119.5) return Math.floor(Math.round(seconds) / 60) + " min " + (Math.round(seconds) % 60) + " s";
    if (seconds >= 0.9995) return digits(seconds) + " s";
    if (seconds >= 0.9995e-3) return digits(seconds * 1e3) + " ms";
    return digits(seconds * 1e6) + " \u00b5s";
  }
  const plainTime = (seconds) => (seconds >= 100 ? thousands(seconds) + " s" : time(seconds));
  function bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let at = 0;
    for (; value >= 1000 && at < 4; at++) value /= 1000;
    return digits(value) + " " + units[at];
  }
  // Idle time at epoch starts is in no share of the steady time: it is said beside that.
  const atStarts = (d) => d.epoch_start_share >= 0.02 ? `, and ${Math.round(d.epoch_start_share * 100)} % of the run at epoch starts` : "";
  const percent = (share) => (share * 100 < 0.05 && share > 0 ? "<0.1" : digitsFixed(share * 100)) + " %";
  const digitsFixed = (value) => (Math.abs(value) >= 99.95 || value === 0 ? String(Math.round(value)) : value.toFixed(1));
  function niceStep(range, parts) {
    const raw = range / parts || 1, power = 10 ** Math.floor(Math.log10(raw)), first = raw / power;
    return power * (first <= 1 ? 1 : first <= 2 ? 2 : first <= 5 ? 5 : 10);
  }
  const card = (title, hint, ...children) => {
    const id = "h-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
    return h("section", { class: "card", "aria-labelledby": id },
      h("div", { class: "head" }, h("h2", { id }, title), hint ? h("p", {}, hint) : null), ...children);
  };

  // --- the verdict ---

  function verdict(run) {
    const d = run.diagnosis, good = d.cause === "device-bound";
    const parts = STAGES.filter(([key]) => d.stages[key] > 0.0005);
    const warnings = d.warnings.length
      ? h("div", { class: "warnings" }, h("p", { class: "label" }, "Keep in mind"),
        h("ul", {}, d.warnings.map((line) => h("li", {}, line)))) : null;
    const gain = d.predicted_gain > 1.005
      ? h("p", { class: "gain" }, "Predicted gain: " + (d.possible_gain > 1.05 * d.predicted_gain ? "at least " : ""), h("b", {}, "\u00d7\u2009" + digits(d.predicted_gain)),
        " (simulated)") : null;
    const others = d.others.length
      ? h("p", { class: "gain" }, "Also in the way: ", d.others.map((o) => `${o.cause} (\u00d7${digits(o.gain)})`).join(", ")) : null;
    return h("section", { class: "card verdict", id: "verdict", tabindex: "-1", "aria-label": "Verdict" },
      h("div", {},
        h("div", { class: "eyebrow" }, h("span", { class: good ? "chip good" : "chip" }, d.cause), h("bdi", {}, run.name)),
        h("h1", {}, CAUSES[d.cause] || d.cause),
        d.evidence.length ? h("p", { class: "lead" }, sentence(d.evidence[0])) : null,
        h("div", { class: "fix" }, h("p", { class: "label" }, "What to do"), h("p", {}, sentence(d.fix)), gain, others)),
      h("div", { class: "share" },
        h("b", { "data-share": d.device_wait_share }, digitsFixed(d.device_wait_share * 100), h("small", {}, "%")),
        h("span", {}, "of the time the device waits for data" + atStarts(d)),
        h("div", { class: "stack", role: "img", "aria-label": parts.map(([k, n]) => `${n} ${percent(d.stages[k])}`).join(", ") },
          parts.map(([key, , kind]) => h("i", { style: { flex: d.stages[key] + " 1 0", background: `var(--${kind})` } }))),
        h("ul", { class: "keys" }, parts.map(([key, name, kind]) =>
          h("li", {}, swatch(kind), h("span", {}, name), h("span", {}, percent(d.stages[key])))))),
      d.evidence.length < 2 && !warnings ? null : h("div", { class: "wide lists" },
        d.evidence.length > 1 ? h("div", {}, h("p", { class: "label" }, "How we know"),
          h("ul", {}, d.evidence.slice(1).map((line) => h("li", {}, line)))) : null, warnings));
  }
  // --- where the time of a sample, of collate and of the loop goes ---

  const HOT_TITLES = { fetch: "Inside a sample", collate: "Inside collate_fn", loop: "Inside the loop, between steps", train: "Inside a training step" };

  function hotCard(run) {
    const hot = run.diagnosis.hot || [];
    const stages = Object.keys(HOT_TITLES).filter((stage) => hot.some((one) => one.stage === stage));
    if (!stages.length) return null;
    return card("Where the time goes in your code", "by looking at the Python stack every few milliseconds",
      h("div", { class: "hots" }, stages.map((stage) => h("div", { class: "hot" }, h("p", { class: "label" }, HOT_TITLES[stage]),
        h("ul", {}, hot.filter((one) => one.stage === stage).slice(0, 6).map((one) =>
          h("li", { title: one.code },
            h("span", {}, h("code", {}, one.function), one.place ? h("small", {}, " " + one.place) : null),
            h("i", { style: { width: percent(one.share) } }), h("span", {}, percent(one.share)))))))));
  }

  // A name of code keeps its first letter.
  const sentence = (text) => (/^\S*[_=.(]/.test(text) ? text : text.slice(0, 1).toUpperCase() + text.slice(1));

  function facts(run) {
    const d = run.diagnosis, config = data.compared.configs.find((one) => one.name === run.name) || {};
    const items = [
      ["samples/s", config.samples_per_s ? amount(config.samples_per_s) : "\u2013"],
      ["run", time(d.run_s)], ["set-up", time(d.setup_s)],
      ["batches", thousands(d.batches), d.epochs > 1 ? ` in ${d.epochs} epochs` : ""],
      ["mean wait", time(d.wait_s.mean)], ["longest wait", time(d.wait_s.max)],
      [d.loader.kind === "native" ? "threads" : "workers", d.loader.workers === null ? "\u2013" : String(d.loader.workers),
        d.loader.cpus ? ` on ${d.loader.cpus} CPUs` : ""],
    ];
    return h("dl", { class: "facts" }, items.map(([name, value, small]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value, small ? h("small", {}, small) : null))));
  }

  // --- the timeline ---

  const numbers = (text) => (text ? text.split(" ").map(Number) : []);

  // A lane of the data, taken apart: begins and lengths in seconds.
  function laneOf(timeline, raw) {
    const unit = timeline.unit_s, work = ["fetch", "sample", "collate"].includes(raw.kind);
    const until = work ? timeline.work_until : timeline.loop_until;
    const lane = { kind: raw.kind, worker: raw.worker, count: raw.count, total: raw.total_s, max: raw.max_s,
      until: until === null ? Infinity : until * unit };
    const spans = numbers(raw.spans), count = spans.length / 3;
    lane.begin = new Float64Array(count); lane.length = new Float64Array(count); lane.about = new Float64Array(count);
    for (let at = 0, t = 0; at < count; at++) {
      t += spans[at * 3];
      lane.begin[at] = t * unit; lane.length[at] = spans[at * 3 + 1] * unit; lane.about[at] = spans[at * 3 + 2];
    }
    lane.longestExact = lane.length.reduce((most, one) => Math.max(most, one), 0);
    const bins = numbers(raw.bins), width = timeline.bin * unit;
    lane.bins = [];
    for (let at = 0, index = 0; at < bins.length; at += 4) {
      index += bins[at];
      const begin = timeline.bin_begin * unit + index * width;
      lane.bins.push({ begin, end: begin + width, covered: bins[at + 1] / 1000, longest: bins[at + 2] * unit, count: bins[at + 3] });
    }
    const longest = numbers(raw.longest);
    lane.longest = [];
    for (let at = 0; at < longest.length; at += 3)
      lane.longest.push({ kind: raw.kind, worker: raw.worker, begin: longest[at] * unit, length: longest[at + 1] * unit, about: longest[at + 2] });
    lane.longest.sort((a, b) => b.length - a.length);
    return lane;
  }

  function rowsOf(run, lanes) {
    const workers = run.timeline.rows, tall = workers > 40 ? 9 : workers > 16 ? 15 : 24;
    const of = (kinds, worker) => lanes.filter((l) => kinds.includes(l.kind) && (worker === null || l.worker === worker));
    const inside = ["fetch", "sample", "collate", "transfer", "read", "decode", "place"];
    const does = run.diagnosis.loader.kind === "native" ? "thread " : "worker ";
    const rows = [{ name: "set-up", lanes: of(["setup"], null), tall: 24 }];
    rows.push({ name: "storage", lanes: of(["storage"], null), tall: 24 });
    for (let worker = 0; worker < workers; worker++)
      rows.push({ name: does + worker, worker, lanes: of(inside, worker), tall });
    if (!workers || of(inside, -1).length) rows.push({ name: "in the loop", lanes: of(inside, -1), tall: 24 });
    rows.push({ name: "train", lanes: of(["train"], null), tall: 40, strong: true,
      small: ["idle ", h("span", { class: "whole" }, percent(run.diagnosis.device_wait_share)), atStarts(run.diagnosis)] });
    rows.push({ name: "wait", lanes: of(["wait"], null), tall: 24 });
    rows.push({ name: "epoch", lanes: of(["epoch"], null), tall: 20 });
    // A run that tells only of steps has no row for what it does not tell; workers are shown, idle or not.
    const told = rows.filter((row) => row.lanes.length || row.strong || row.worker !== undefined);
    let top = 26;
    for (const row of told) { row.top = top; top += row.tall + (row.tall > 12 ? 4 : 1); }
    return { rows: told, height: top + 2 };
  }

  // First span that may reach past `t`.
  function firstAt(lane, t) {
    let low = 0, high = lane.begin.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.begin[middle] < t - lane.longestExact) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Calls each(from, to, covered) in seconds for everything of a lane between two times.
  function eachPiece(lane, from, to, each) {
    for (let at = firstAt(lane, from); at < lane.begin.length && lane.begin[at] < to; at++) {
      const end = lane.begin[at] + lane.length[at];
      if (end >= from) each(lane.begin[at], end, 1);
    }
    for (const bin of lane.bins)
      if (bin.end > from && bin.begin < to && bin.end > lane.until) each(Math.max(bin.begin, lane.until), bin.end, bin.covered);
  }

  // Whole shapes where they are a pixel or wider; below that each pixel as dark as it is covered.
  function paintLane(c, lane, view, y, tall) {
    const scale = view.width / (view.to - view.from), thin = new Float32Array(Math.ceil(view.width) + 2);
    const x = (t) => (t - view.from) * scale;
    c.fillStyle = colour(lane.kind);
    eachPiece(lane, view.from, view.to, (begin, end, covered) => {
      let left = Math.max(x(begin), 0), right = Math.min(x(end), view.width);
      if (right - left >= 1) {
        const gap = right - left > 5 && covered === 1 ? 0.75 : 0;
        if (covered < 1) { left = Math.round(left); right = Math.round(right); } // neighbours leave no seam
        c.globalAlpha = Math.max(covered, 0.03);
        c.fillRect(left, y, right - left - gap, tall);
      } else { // its share to each of the two pixels it may lie on; what is there is never nothing
        const pixel = Math.floor(left), cut = Math.min(right, pixel + 1);
        thin[pixel] += Math.max(covered * (cut - left), 1e-6);
        if (right > cut) thin[pixel + 1] += covered * (right - cut);
      }
    });
    for (let pixel = 0; pixel < thin.length; pixel++)
      if (thin[pixel] > 0) {
        c.globalAlpha = Math.min(Math.max(thin[pixel], 0.04), 1);
        c.fillRect(pixel, y, 1, tall);
      }
    c.globalAlpha = 1;
    paintOutliers(c, lane, view, y, tall, x);
  }

  // The rare and long: two pixels at least, and a mark above.
  function paintOutliers(c, lane, view, y, tall, x) {
    const mean = lane.total / lane.count;
    for (const span of lane.longest) {
      const left = x(span.begin), right = x(span.begin + span.length);
      if (!span.length || span.length < 10 * mean || right < 0 || left > view.width) continue;
      c.fillRect(left, y, Math.max(right - left, 2), tall);
      if (right - left > 40 || tall < 12) continue;
      const middle = (left + right) / 2;
      c.beginPath();
      c.moveTo(middle - 4, y - 5); c.lineTo(middle + 4, y - 5); c.lineTo(middle, y + 1); c.fill();
    }
  }

  function paintAxis(c, view, height) {
    const step = niceStep(view.to - view.from, Math.max(view.width / 110, 2));
    const decimals = Math.max(0, -Math.floor(Math.log10(step)));
    c.font = "12px " + getComputedStyle(document.body).fontFamily;
    c.textBaseline = "middle";
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = Math.round(((t - view.from) / (view.to - view.from)) * view.width) + 0.5;
      c.strokeStyle = colour("line");
      c.beginPath(); c.moveTo(x, 22); c.lineTo(x, height); c.stroke();
      c.fillStyle = colour("muted");
      const text = t.toFixed(decimals) + " s", wide = c.measureText(text).width;
      c.fillText(text, Math.min(Math.max(x - wide / 2, 0), view.width - wide), 10);
    }
  }

  const ORDER = { fetch: 0, sample: 1, collate: 2, transfer: 3, read: 4, decode: 5, place: 6 };
  function paintRow(c, row, view) {
    c.fillStyle = colour("soft");
    c.fillRect(0, row.top, view.width, row.tall);
    for (const lane of [...row.lanes].sort((a, b) => ORDER[a.kind] - ORDER[b.kind])) {
      let top = row.top, tall = row.tall;
      const alone = lane.kind === "sample" && !row.lanes.some((l) => l.kind === "fetch");
      if (lane.kind === "sample" && !alone) { // a strip below the batch it is of, once there is room
        if (lane.usual * (view.width / (view.to - view.from)) < 2) continue;
        tall = Math.round(row.tall * 0.3); top += row.tall - tall;
      }
      if (lane.kind === "transfer") tall = Math.max(Math.round(row.tall * 0.36), 3);
      paintLane(c, lane, view, top, tall);
    }
  }

  function timelineCard(run) {
    const timeline = run.timeline, whole = timeline.length * timeline.unit_s || 1;
    const lanes = timeline.lanes.map((raw) => laneOf(timeline, raw));
    const samples = lanes.filter((lane) => lane.kind === "sample"), sum = (key) => samples.reduce((all, one) => all + one[key], 0);
    for (const lane of samples) lane.usual = sum("total") / sum("count");
    const { rows, height } = rowsOf(run, lanes);
    const canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline",
      "aria-label": `Timeline of ${run.name}, ${time(whole)}. Arrow keys move, plus and minus zoom, 0 shows all.` });
    const thumb = h("i", {});
    const every = rows.length > 44 ? Math.ceil(16 / rows[1].tall) : 1;
    const labels = h("div", { class: "labels" }, rows.map((row) => h("div", {
      class: row.strong ? "strong" : null, "data-row": row.name, "data-worker": row.worker === undefined ? null : row.worker,
      style: { height: row.tall + "px", "margin-bottom": (row.tall > 12 ? 4 : 1) + "px" } },
    row.worker !== undefined && row.worker % every ? "" : row.name, row.small ? h("small", {}, row.small) : null)));
    state.from = 0; state.to = whole;

    const view = () => ({ from: state.from, to: state.to, width: canvas.clientWidth });
    let due = false;
    function draw() {
      due = false;
      const dense = window.devicePixelRatio || 1, v = view();
      if (!v.width) return;
      canvas.style.height = height + "px";
      canvas.width = Math.round(v.width * dense); canvas.height = Math.round(height * dense);
      const c = canvas.getContext("2d");
      c.scale(dense, dense);
      for (const row of rows) { c.fillStyle = colour("soft"); c.fillRect(0, row.top, v.width, row.tall); }
      paintAxis(c, v, height);
      for (const row of rows) paintRow(c, row, v);
      thumb.style.left = (state.from / whole) * 100 + "%";
      thumb.style.width = ((state.to - state.from) / whole) * 100 + "%";
    }
    const later = () => { if (!due) { due = true; requestAnimationFrame(draw); } };
    redraws.push(draw);

    function show(from, to) {
      const least = whole / 2e5, wide = Math.min(Math.max(to - from, least), whole);
      const middle = (from + to) / 2;
      state.from = Math.min(Math.max(middle - wide / 2, 0), whole - wide);
      state.to = state.from + wide;
      later();
    }
    function zoom(factor, share = 0.5) {
      const at = state.from + (state.to - state.from) * share, wide = Math.min(Math.max((state.to - state.from) * factor, whole / 2e5), whole);
      show(at - wide * share, at - wide * share + wide);
    }
    const pan = (share) => { const by = (state.to - state.from) * share; show(state.from + by, state.to + by); };

    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / box.width);
      else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), (event.clientX - box.left) / box.width);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const acts = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6),
        "-": () => zoom(1 / 0.6), "0": () => show(0, whole), Home: () => show(0, state.to - state.from),
        End: () => show(whole - (state.to - state.from), whole), Escape: () => show(0, whole) };
      if (acts[event.key] && !event.ctrlKey && !event.metaKey) { acts[event.key](); event.preventDefault(); }
    });
    drag(canvas, { pan: (dx) => pan(-dx / canvas.clientWidth), zoom });
    canvas.addEventListener("pointermove", (event) => hover(event, canvas, rows, view()));
    canvas.addEventListener("pointerleave", () => tip(null));
    canvas.addEventListener("dblclick", () => show(0, whole));
    canvas.millhead = { view, show, rows }; // for tests

    const button = (text, name, act) => h("button", { type: "button", class: "tool", "aria-label": name, title: name, onclick: act }, text);
    const kinds = ["setup", "fetch", "sample", "collate", "transfer", "storage", "read", "decode", "place", "train", "wait", "epoch"].filter((k) => lanes.some((l) => l.kind === k));
    const section = card("Timeline", [h("span", { class: "mouse" }, "Wheel or + and \u2212 zoom, drag or arrows move, 0 shows all"),
      h("span", { class: "touch" }, "Two fingers zoom, one moves")]);
    section.querySelector(".head").append(h("div", { class: "tools" }, button("+", "Zoom in", () => zoom(0.5)),
      button("\u2212", "Zoom out", () => zoom(2)), button("All", "Show the whole run", () => show(0, whole))));
    section.append(h("ul", { class: "legend" }, kinds.map((k) => h("li", {}, swatch(k), KINDS[k]))),
      h("div", { class: "chart" }, labels, canvas, h("div", { class: "track", "aria-hidden": "true" }, thumb)),
      ...jumps(lanes, (span) => { show(span.begin - span.length * 1.5, span.begin + span.length * 2.5); canvas.focus(); }),
      h("p", { class: "note" }, honesty(run, timeline, samples.length && lanes.some((lane) => lane.kind === "fetch"))));
    return section;
  }

  function honesty(run, timeline, strips) {
    const until = [timeline.work_until, timeline.loop_until].filter((t) => t !== null);
    let text = `${thousands(run.events)} events were read, and all numbers cover all of them. `;
    if (run.ranks.length > 1) text += "The first rank that reports batches is drawn. ";
    else if (!until.length) text += "Every one is drawn" + (strips ? ", single samples once there is room for them. " : ". ");
    if (until.length) text += `Each is drawn up to ${time(Math.min(...until) * timeline.unit_s)}; after that, the run is drawn in steps of ` +
      `${time(timeline.bin * timeline.unit_s)}, darker where more of a step is covered. The longest events of each row are always drawn. `;
    if (timeline.left_out) text += `${thousands(timeline.left_out)} could not be drawn: too many rows.`;
    return text;
  }

  // Several times as long as others of their kind, and long enough for a step to notice.
  function jumps(lanes, go) {
    const step = lanes.find((lane) => lane.kind === "train"), least = step ? (0.1 * step.total) / step.count : 0;
    const all = ["sample", "fetch", "collate", "wait", "train"].flatMap((kind) => lanes.filter((l) => l.kind === kind).flatMap((l) =>
      l.longest.slice(0, 2).filter((span) => span.length > 3 * (l.total / l.count) && span.length > least)).sort((a, b) => b.length - a.length).slice(0, 2))
      .sort((a, b) => b.length - a.length).filter((span, at, spans) => span.length > spans[0].length / 20);
    if (!all.length) return [];
    return [h("div", { class: "jumps" }, h("span", { class: "label" }, "Unusually long"), all.map((span) =>
      h("button", { type: "button", class: "jump", onclick: () => go(span) }, swatch(span.kind),
        `${time(span.length)} ${KINDS[span.kind]}${span.worker >= 0 ? ", worker " + span.worker : ""}`)))];
  }

  // One pointer moves, two zoom.
  function drag(canvas, act) {
    const down = new Map();
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); down.set(event.pointerId, event.clientX); tip(null); });
    canvas.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) return;
      const before = [...down.values()];
      down.set(event.pointerId, event.clientX);
      const now = [...down.values()];
      if (down.size === 1) act.pan(now[0] - before[0]);
      else if (down.size === 2) act.zoom(Math.max(Math.abs(before[0] - before[1]), 8) / Math.max(Math.abs(now[0] - now[1]), 8));
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => down.delete(event.pointerId));
  }

  function hover(event, canvas, rows, view) {
    const box = canvas.getBoundingClientRect(), y = event.clientY - box.top;
    const t = view.from + ((event.clientX - box.left) / view.width) * (view.to - view.from), near = (view.to - view.from) / view.width * 2;
    const row = rows.find((one) => y >= one.top && y < one.top + one.tall);
    if (!row || event.buttons) return tip(null);
    let best = null;
    for (const lane of row.lanes) {
      const consider = (span) => { if (span.begin <= t + near && span.begin + span.length >= t - near && (!best || span.length < best.length)) best = span; };
      for (let at = firstAt(lane, t - near); at < lane.begin.length && lane.begin[at] <= t + near; at++)
        consider({ kind: lane.kind, worker: lane.worker, begin: lane.begin[at], length: lane.length[at], about: lane.about[at] });
      lane.longest.forEach(consider);
    }
    if (best) return tip(event, [KINDS[best.kind] + (best.worker >= 0 ? (TASKS.includes(best.kind) ? ", thread " : ", worker ") + best.worker : ""),
      `${time(best.length)}, from ${best.begin.toFixed(3)} s on`, best.about >= 0 ? aboutText(best) : ""]);
    const lane = row.lanes.find((one) => one.bins.some((bin) => t >= bin.begin && t < bin.end));
    if (!lane) return tip(null);
    const bin = lane.bins.find((one) => t >= one.begin && t < one.end);
    return tip(event, [row.name, `${thousands(bin.count)} \u00d7 ${KINDS[lane.kind]} in ${time(bin.end - bin.begin)}`,
      `${percent(bin.covered)} covered, longest ${time(bin.longest)}`]);
  }
  const aboutText = (span) => TASKS.includes(span.kind) ? `${thousands(span.about)} task${span.about === 1 ? "" : "s"}` : ({ sample: "sample ", epoch: "epoch ", setup: "epoch ", fetch: "its batch ", collate: "its batch " }[span.kind] || "batch ") + span.about;

  function tip(event, lines) {
    const box = document.getElementById("tip");
    box.hidden = !event;
    if (!event) return;
    box.replaceChildren(h("b", {}, lines[0]), ...lines.slice(1).filter(Boolean).map((line) => h("div", {}, line)));
    box.style.left = Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8) + "px";
    box.style.top = Math.min(event.clientY + 16, window.innerHeight - box.offsetHeight - 8) + "px";
  }

  // --- plots: a function that draws for a width, called again when it changes ---

  function plot(height, label, draw) {
    const holder = h("div", {});
    const make = () => {
      const width = Math.max(holder.clientWidth, 240);
      holder.replaceChildren(draw(s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }), width));
    };
    redraws.push(make);
    return holder;
  }

  function waitsCard(run) {
    const w = run.waits;
    const title = card("Waits", `${thousands(w.count)} waits for a batch, without the first of the run`);
    if (!w.count) { title.append(h("p", { class: "note" }, "The loop asked for one batch only.")); return title; }
    const first = Math.max(w.bins[0][0], 1e-6) / 1.4, last = Math.max(w.bins[w.bins.length - 1][1], first * 16) * 1.15;
    const most = Math.max(...w.bins.map((bin) => bin[2]));
    title.append(plot(262, `Histogram of waits: median ${time(w.p50)}, 99 % below ${time(w.p99)}, longest ${time(w.max)}`, (svg, width) => {
      const left = 44, right = width - 6, bottom = 234, top = 74;
      const x = (t) => left + ((Math.log(Math.max(t, first)) - Math.log(first)) / (Math.log(last) - Math.log(first))) * (right - left);
      svg.append(s("line", { class: "axis", x1: left, x2: right, y1: top, y2: top }),
        s("text", { x: left - 8, y: top + 4, "text-anchor": "end" }, short(most)),
        s("text", { x: left - 8, y: bottom + 4, "text-anchor": "end" }, "0"));
      for (const [begin, end, count] of w.bins) {
        const from = x(begin), tall = Math.max((count / most) * (bottom - top), 2);
        svg.append(s("rect", { x: from + 0.5, y: bottom - tall, width: Math.max(x(end) - from - 1, 1), height: tall, rx: 1.5, fill: "var(--wait)" },
          s("title", {}, `${thousands(count)} waits of ${time(begin)} to ${time(end)}`)));
      }
      svg.append(s("line", { class: "base", x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5 }));
      const decades = Math.log10(last / first), room = (right - left) / decades;
      const steps = decades < 2.5 && room > 130 ? [1, 2, 5] : decades < 4 && room > 90 ? [1, 3] : [1];
      for (let t = 1e-6; t < 1e5; t *= 10) for (const step of steps)
        if (t * step >= first && t * step <= last)
          svg.append(s("line", { class: "base", x1: x(t * step), x2: x(t * step), y1: bottom, y2: bottom + 4 }),
            s("text", { x: x(t * step), y: bottom + 20, "text-anchor": "middle" }, time(t * step)));
      const marks = [["median", w.p50], ["p99", w.p99], ["max", w.max]].map(([name, t], at) => ({ text: `${name} ${time(t)}`, place: x(t), y: 14 + 18 * (2 - at) }));
      for (const { place, y } of marks) svg.append(s("line", { class: "mark", x1: place, x2: place, y1: y + 5, y2: bottom }));
      for (const { text, place, y } of marks) { // to the left where another mark is in the way
        const wide = 7 * text.length, end = place > width * 0.6 ||
          (place > wide && marks.some((other) => other.place > place + 2 && other.place < place + wide + 8));
        svg.append(s("text", { class: "ink halo", x: place + (end ? -5 : 5), y: y + 8, "text-anchor": end ? "end" : "start" }, text));
      }
      return svg;
    }));
    title.append(h("dl", { class: "quants" }, [["mean", w.mean], ["median", w.p50], ["90 %", w.p90], ["95 %", w.p95],
      ["99 %", w.p99], ["99.9 %", w.p999], ["max", w.max]].map(([name, t]) => h("div", {}, h("dt", {}, name), h("dd", {}, time(t))))));
    return title;
  }

  const SERIES = {
    cpu_machine: ["machine", "epoch"], cpu_workers: ["workers", "sample"], cpu_main: ["training process", "train"],
    memory_workers: ["workers", "sample"], memory_main: ["training process", "train"],
    disk_read: ["disks of the machine", "collate"], net_read: ["network of the machine", "transfer"], gpu_util: ["GPU", "wait"],
  };
  function linePlot(run, names, unit, label) {
    const u = run.usage, length = run.timeline.length * run.timeline.unit_s || 1;
    const most = Math.max(...names.flatMap((name) => u[name].map((v) => v || 0)), 1e-9);
    const figure = h("figure", {}, plot(150, label, (svg, width) => {
      const left = 58, right = width - 6, top = 10, bottom = 122, step = niceStep(most, 3), end = Math.ceil(most / step - 1e-9) * step;
      const x = (t) => left + (t / length) * (right - left), y = (v) => bottom - (v / end) * (bottom - top);
      for (let v = 0; v <= end * 1.001; v += step)
        svg.append(s("line", { class: v ? "axis" : "base", x1: left, x2: right, y1: y(v), y2: y(v) }),
          s("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, v ? unit(v) : "0"));
      const ticks = niceStep(length, width / 130);
      for (let t = 0; t <= length; t += ticks)
        svg.append(s("text", { x: x(t), y: bottom + 20, "text-anchor": t ? "middle" : "start" }, digits(t, 4) + " s"));
      for (const name of names) {
        let path = "", open = false;
        u[name].forEach((value, at) => {
          if (value === null) { open = false; return; }
          path += (open ? "L" : "M") + x(Math.max(u.begin_s + (at + 0.5) * u.step_s, 0)).toFixed(1) + " " + y(value).toFixed(1);
          open = true;
        });
        svg.append(s("path", { d: path, fill: "none", stroke: `var(--${SERIES[name][1]})`, "stroke-width": 2, "stroke-linejoin": "round" }));
      }
      return svg;
    }));
    return h("div", {}, h("ul", { class: "legend" }, h("li", {}, h("b", {}, label)),
      names.map((name) => h("li", {}, swatch(SERIES[name][1]), SERIES[name][0]))), figure);
  }
  function usageCard(run) {
    const has = (names) => names.filter((name) => run.usage[name] && run.usage[name].some((v) => v !== null));
    const groups = [[has(["cpu_machine", "cpu_workers", "cpu_main"]), (v) => digits(v), "CPUs in use"],
      [has(["memory_workers", "memory_main"]), bytes, "Memory"],
      [has(["disk_read", "net_read"]).filter((n) => Math.max(...run.usage[n].map((v) => v || 0)) > 1e5), (v) => bytes(v) + "/s", "Reads"],
      [has(["gpu_util"]), (v) => percent(v), "GPU in use"]].filter(([names]) => names.length);
    if (!groups.length) return null;
    return card("CPU and memory", "Sampled about once a second", h("div", { class: "many" },
      groups.map(([names, unit, label]) => linePlot(run, names, unit, label))));
  }

  // --- tables ---

  function stagesCard(run) {
    const columns = [["name", "Stage"], ["count", "Count", thousands], ["total_s", "Total", plainTime], ["mean_s", "Mean", plainTime],
      ["p50_s", "Median", plainTime], ["p99_s", "99 %", plainTime], ["max_s", "Max", plainTime], ["share", "Share"]];
    const body = h("tbody", {}), heads = columns.map(([key, name]) => h("th", { scope: "col", "data-key": key },
      h("button", { type: "button", onclick: () => { state.down = state.sort === key ? !state.down : key !== "name"; state.sort = key; rows(); } }, name)));
    function rows() {
      const sorted = [...run.stages].sort((a, b) => (a[state.sort] < b[state.sort] ? -1 : a[state.sort] > b[state.sort] ? 1 : 0) * (state.down ? -1 : 1));
      heads.forEach((head) => head.setAttribute("aria-sort", head.dataset.key !== state.sort ? "none" : state.down ? "descending" : "ascending"));
      body.replaceChildren(...sorted.map((stage) => h("tr", {}, columns.map(([key, , show]) => {
        if (key === "name") return h("td", {}, swatch(stage.name), KINDS[stage.name] || stage.name);
        if (key === "share") return h("td", { class: "bar-cell" }, percent(stage.share), h("span", { class: "meter", "aria-hidden": "true" },
          h("i", { style: { width: Math.min(stage.share, 1) * 100 + "%", background: `var(--${stage.name})` } })));
        return h("td", {}, show(stage[key]));
      }))));
    }
    rows();
    return card("Stages", "Share of the run\u2019s time; for workers, of their total time",
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages" },
        h("table", {}, h("thead", {}, h("tr", {}, heads)), body)));
  }

  function comparedCard() {
    const configs = data.compared.configs;
    if (configs.length < 2) return null;
    const metrics = [["Samples/s", "samples_per_s", "samples_per_s_std", amount, "more is better"],
      ["Total", "total_s", "total_std_s", time, "less is better"], ["Mean wait", "wait_mean_s", null, time, "less is better"]];
    const spread = configs.some((one) => one.samples_per_s_std || one.total_std_s);
    const section = card("Configurations", spread ? `Error bars: one standard deviation over ${data.compared.error_bars}` :
      `No error bars: that takes several ${data.compared.error_bars}`);
    const chosen = data.compared.recommended;
    const tabs = h("div", { class: "tabs", role: "group", "aria-label": "What is compared" });
    const holder = plot(34 * configs.length + 12, "Configurations compared", (svg, width) => {
      const [, key, spread, show] = metrics[state.metric], narrow = width < 520;
      const left = narrow ? 104 : 176, room = width - left - (narrow ? 92 : 150);
      const most = Math.max(...configs.map((one) => (one[key] || 0) + ((spread && one[spread]) || 0)), 1e-12);
      configs.forEach((one, at) => {
        const y = 6 + at * 34, wide = ((one[key] || 0) / most) * room, reach = spread && one[spread] ? (one[spread] / most) * room : 0;
        const cut = narrow ? 14 : 24, letters = [...one.name], name = "\u2068" + (letters.length > cut ? letters.slice(0, cut - 1).join("") + "\u2026" : one.name) + "\u2069";
        const best = chosen && chosen.name === one.name;
        svg.append(s("text", { class: "ink", x: left - 12, y: y + 16, "text-anchor": "end", "font-weight": best ? 700 : 400 }, name, s("title", {}, one.name)),
          s("rect", { x: left, y: y + 2, width: Math.max(wide, 1), height: 20, rx: 3, fill: best ? "var(--accent)" : "var(--fetch)" }));
        if (reach) svg.append(s("path", { class: "err", d: `M${left + wide - reach} ${y + 12}H${left + wide + reach}M${left + wide - reach} ${y + 7}v10M${left + wide + reach} ${y + 7}v10` }));
        const text = one[key] === null ? (one.total_s === null ? "failed" : "not known") : show(one[key]) + (spread && one[spread] ? ` \u00b1 ${spread === "total_std_s" ? time(one[spread]) : digits(one[spread], 2)}` : "");
        svg.append(s("text", { x: left + wide + reach + 8, y: y + 16 }, narrow ? text.split(" \u00b1")[0] : text));
      });
      return svg;
    });
    const draw = redraws[redraws.length - 1];
    metrics.forEach(([name], at) => tabs.append(h("button", { type: "button", "aria-pressed": String(at === state.metric), onclick: (event) => {
      state.metric = at;
      for (const one of tabs.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
      draw();
    } }, name)));
    section.querySelector(".head").append(tabs);
    section.append(holder);
    if (chosen && chosen.reason) section.append(h("p", { class: "note" }, h("b", {}, `Recommended: ${chosen.name}. `), sentence(chosen.reason)));
    return section;
  }

  function ranksCard(run) {
    if (run.ranks.length < 2) return null;
    const slow = run.diagnosis.cause === "straggler" ? run.ranks.reduce((most, one) => (one.own_s > most.own_s ? one : most)) : null;
    return card("Ranks", "Own time: without waiting for other ranks", h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranks" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Rank", "Steps", "Data", "Own", "Waiting", "Total"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, run.ranks.map((r) => h("tr", { class: r === slow ? "strong" : null }, h("td", {}, `${r.rank}${r.host ? " on " + r.host : ""}`), h("td", {}, thousands(r.steps)),
        [r.data_s, r.own_s, r.waiting_s, r.total_s].map((t) => h("td", {}, time(t)))))))));
  }

  function flat(value, prefix, out) {
    for (const [key, one] of Object.entries(value || {})) {
      const name = prefix ? prefix + "." + key : key;
      if (one === null) continue;
      if (typeof one === "object" && !Array.isArray(one)) flat(one, name, out);
      else out.push([name, Array.isArray(one) ? one.join(" ") : readable(name, one)]);
    }
    return out;
  }
  function readable(name, value) {
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (/^cgroup/.test(name) && (Number(value) < 0 || Number(value) > 2 ** 60)) return "no limit";
    if (/(^|[._])(memory|shm|bytes)$/.test(name) && typeof value === "number") return bytes(value);
    return String(value);
  }
  const pairs = (list) => h("dl", { class: "pairs" }, list.map(([key, value]) =>
    [h("dt", { class: value.length > 36 ? "long" : null }, key), h("dd", { class: value.length > 36 ? "long" : null }, value)]));
  function settingsCards(run) {
    const loader = flat(run.loader, "", []).filter(([, value]) => value !== "");
    for (const pair of loader) if (["in_order", "persistent", "pin_memory"].includes(pair[0])) pair[1] = pair[1] === "1" ? "yes" : "no";
    const given = flat(run.parameters, "", []);
    if (run.argv && run.argv.length) given.push(["command", run.argv.join(" ")]);
    const environment = flat(run.environment, "", []);
    const all = [...loader, ...given], half = Math.ceil(all.length / 2);
    if (!all.length && !environment.length) return null;
    if (!environment.length)
      return card("Parameters", "", h("div", { class: "two" }, pairs(all.slice(0, half)), pairs(all.slice(half))));
    const middle = Math.ceil(environment.length / 2);
    return h("div", { class: "two settings" }, card("Parameters", "", pairs(all)),
      card("Environment", "", h("div", { class: "two" }, pairs(environment.slice(0, middle)), pairs(environment.slice(middle)))));
  }

  // --- the page ---

  function render() {
    const run = data.runs[state.run];
    redraws.length = 0;
    document.title = `${run.diagnosis.cause}: ${run.name} \u2013 millhead report`;
    const parts = [verdict(run), facts(run), comparedCard(), timelineCard(run),
      h("div", { class: "two lean" }, waitsCard(run), stagesCard(run)), hotCard(run), usageCard(run), ranksCard(run), settingsCards(run)];
    document.getElementById("main").replaceChildren(...parts.filter(Boolean));
    redraws.forEach((draw) => draw());
    document.getElementById("foot").textContent = `Made by millhead ${data.millhead} from ${run.path}. One file; works offline.`;
  }

  function picker() {
    if (data.runs.length < 2) return;
    const select = h("select", { "aria-label": "Run", onchange: () => { state.run = Number(select.value); render(); } },
      data.runs.map((run, at) => h("option", { value: at }, `${run.name}: ${run.diagnosis.cause}`)));
    document.getElementById("picker").append(h("label", {}, h("span", {}, "Run"), select));
  }

  // Light or dark: as the system says, or as the button does.
  function themes() {
    const button = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)"), names = ["auto", "light", "dark"];
    let chosen = "auto";
    try { chosen = localStorage.getItem("millhead-theme") || "auto"; } catch { /* a frame without storage */ }
    const apply = () => {
      document.documentElement.dataset.theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
      button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[chosen] || "Auto";
      button.setAttribute("aria-label", `Colours: ${chosen === "auto" ? "as the system" : chosen}`);
      redraws.forEach((draw) => draw());
    };
    button.addEventListener("click", () => {
      chosen = names[(names.indexOf(chosen) + 1) % names.length];
      try { localStorage.setItem("millhead-theme", chosen); } catch { /* not kept, then */ }
      apply();
    });
    dark.addEventListener("change", apply);
    addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; redraws.forEach((draw) => draw()); });
    addEventListener("afterprint", apply);
    apply();
  }

  let resizing = 0;
  addEventListener("resize", () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(() => redraws.forEach((draw) => draw())); });
  picker();
  themes();
  render();
})();
