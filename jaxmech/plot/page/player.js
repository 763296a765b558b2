"use strict";
// Unpacks the scene of the page, and plays it: camera, controls and the card of a body.

const $ = (id) => document.getElementById(id);
const OPENING = (36 * Math.PI) / 180, GHOST = 0.28;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer()), count = planes.length / 4;
  const numbers = new Int32Array(count);
  for (let i = 0; i < count; i++)
    numbers[i] = planes[i] | (planes[count + i] << 8) | (planes[2 * count + i] << 16) | (planes[3 * count + i] << 24);
  return numbers;
}

// An array by rows, from second differences by columns; see stream.py.
function rowsOf(numbers, { at, rows, columns, step }) {
  const values = new Float32Array(rows * columns);
  for (let c = 0; c < columns; c++) {
    let value = 0, rate = 0;
    for (let r = 0; r < rows; r++) {
      rate += numbers[at + c * rows + r];
      value += rate;
      values[r * columns + c] = value * step;
    }
  }
  return values;
}

class Track {
  constructor(numbers, entry, frames) {
    Object.assign(this, entry);
    this.values = rowsOf(numbers, entry);
    this.fixed = this.rows === 1;
    this.last = this.fixed ? frames - 1 : this.rows - 1;
    this.row = new Float32Array(this.columns);
  }

  // The values between frames, or null after a failure.
  when(frame) {
    const { values, columns, row } = this;
    if (!this.rows || frame > this.last + 1e-6) return null;
    const k = this.fixed ? 0 : Math.min(Math.floor(frame), this.rows - 2), s = this.fixed ? 0 : frame - k;
    Object.assign(this, { k, s });
    for (let c = 0; c < columns; c++) {
      const a = values[k * columns + c];
      row[c] = s ? a + s * (values[(k + 1) * columns + c] - a) : a;
    }
    return row;
  }
}

// The frame of a mesh along z between -1/2 and 1/2, of a radius, between two points.
function bar(a, b, radius, length = 1) {
  const along = V.sub(b, a), u = V.unit(along);
  const p = V.unit(V.cross(Math.abs(u[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0], u)), q = V.cross(u, p);
  const middle = V.scaled(V.add(a, b), 0.5);
  return [...V.scaled(p, radius), ...V.scaled(q, radius), ...V.scaled(along, length), ...middle];
}

const point = (row, k) => [row[3 * k], row[3 * k + 1], row[3 * k + 2]];

class Player {
  constructor(numbers) {
    this.numbers = numbers;
    this.renderer = new Renderer($("scene"));
    this.frames = SCENE.times.length;
    this.frame = 0;
    this.playing = true;
    this.chosen = -1;
    this.hidden = new Set();
    this.basic = SCENE.basic; // the indices of meshes
    this.meshes = SCENE.meshes.map(({ vertices, faces }) => {
      const stored = rowsOf(numbers, vertices), all = new Float32Array(3 * vertices.all);
      for (let i = 0; i < vertices.all; i++) all.set(stored.subarray(vertices.rows > 1 ? 3 * i : 0, (vertices.rows > 1 ? 3 * i : 0) + 3), 3 * i);
      return { vertices: all, faces: Uint32Array.from(rowsOf(numbers, faces)) };
    });
    this.items = SCENE.items.map((item) => ({ ...item, track: new Track(numbers, item.track, this.frames) }));
    for (const group of SCENE.groups) if (group.values) group.track = new Track(numbers, group.values, this.frames);
    this.prepare();
    this.camera = { free: false };
    this.controls();
    this.resize();
  }

  // A batch for each mesh, opaque and see-through, with room for all of its instances.
  prepare() {
    const rooms = new Map();
    const need = (mesh, ghost, count) => {
      const key = `${mesh} ${ghost}`;
      rooms.set(key, (rooms.get(key) || 0) + count);
    };
    for (const item of this.items) {
      const ghost = item.member > 0, many = item.track.columns / 3 - 1;
      if (item.kind === "solid") need(item.mesh, ghost, 1);
      if (item.kind === "line") {
        need(this.basic.cylinder, ghost, many);
        need(this.basic.sphere, ghost, many + 1);
        if (item.closed) need(this.basic.triangle, true, many);
      }
      if (item.kind === "trail") need(this.basic.cylinder, ghost, 4 * this.frames);
      if (item.kind === "dot") need(this.basic.sphere, ghost, many + 1);
      if (item.kind === "arrow") {
        need(this.basic.cylinder, ghost, 1);
        need(this.basic.cone, ghost, 1);
      }
    }
    this.batches = new Map();
    for (const [key, room] of rooms) {
      const [mesh, ghost] = key.split(" "), { vertices, faces } = this.meshes[mesh];
      const batch = this.renderer.batch(vertices, faces, room);
      batch.see_through = ghost === "true";
      this.batches.set(key, batch);
    }
  }

  put(mesh, item, frame, alpha) {
    const batch = this.batches.get(`${mesh} ${alpha < 1}`), at = INSTANCE * batch.count++;
    batch.instances.set(frame, at);
    batch.instances.set(item.color, at + 12);
    batch.instances[at + 15] = alpha;
    batch.instances[at + 16] = item.group;
  }

  arrange() {
    for (const batch of this.batches.values()) batch.count = 0;
    for (const item of this.items) {
      if (this.hidden.has(item.group) || (item.member > 0 && this.hidden.has(-1))) continue;
      const row = item.track.when(this.frame), alpha = item.member > 0 ? GHOST : 1;
      if (item.kind === "trail") this.trail(item, alpha);
      else if (row) this[item.kind](item, row, alpha);
    }
  }

  // Between frames axes keep their lengths, so that a body that turns does not shrink.
  solid(item, row, alpha) {
    const { values, k, s } = item.track, frame = [...row];
    for (let i = 0; i < 9; i += 3) {
      const length = (k) => Math.hypot(...values.subarray(12 * k + i, 12 * k + i + 3));
      const kept = s ? (1 - s) * length(k) + s * length(k + 1) : length(k);
      const scale = kept / (Math.hypot(...frame.slice(i, i + 3)) || 1) / SCENE.size;
      for (let j = i; j < i + 3; j++) frame[j] *= scale;
    }
    this.put(item.mesh, item, frame, alpha);
  }

  dot(item, row, alpha, k = 0) {
    const r = item.radius;
    this.put(this.basic.sphere, item, [r, 0, 0, 0, r, 0, 0, 0, r, ...point(row, k)], alpha);
  }

  line(item, row, alpha) {
    const count = row.length / 3, middle = [0, 0, 0];
    for (let k = 0; k < count; k++) {
      this.dot(item, row, alpha, k);
      if (k) this.put(this.basic.cylinder, item, bar(point(row, k - 1), point(row, k), item.radius), alpha);
      for (let i = 0; i < 3; i++) middle[i] += row[3 * k + i] / count;
    }
    if (!item.closed) return;
    for (let k = 1; k < count; k++) {
      const u = V.sub(point(row, k - 1), middle), v = V.sub(point(row, k), middle);
      this.put(this.basic.triangle, item, [...u, ...v, ...V.unit(V.cross(u, v)), ...middle], 1.4 * GHOST * alpha);
    }
  }

  // A smooth curve through the points up to now, with three more between each two.
  trail(item, alpha) {
    const { values, rows } = item.track, last = Math.min(this.frame, rows - 1);
    const fine = rows > 400 ? 1 : 4, stride = Math.max(1, Math.ceil(rows / 600));
    const at = (k) => [...values.subarray(3 * Math.max(0, Math.min(rows - 1, k)), 3 * Math.max(0, Math.min(rows - 1, k)) + 3)];
    let here = at(0);
    for (let k = 0; k < last; k += stride) {
      const [a, b, c, d] = [k - stride, k, k + stride, k + 2 * stride].map(at);
      for (let i = 1; i <= fine; i++) {
        const s = i / fine;
        if (k + s * stride > last) return;
        const next = b.map((x, j) => x + 0.5 * s * (c[j] - a[j] + s * (2 * a[j] - 5 * x + 4 * c[j] - d[j] + s * (3 * (x - c[j]) + d[j] - a[j]))));
        this.put(this.basic.cylinder, item, bar(here, next, item.radius), alpha);
        here = next;
      }
    }
  }

  arrow(item, row) {
    const a = point(row, 0), b = point(row, 1), along = V.sub(b, a), size = V.length(along);
    if (!size) return;
    const head = Math.min(6 * item.radius, 0.6 * size), neck = V.sub(b, V.scaled(V.unit(along), head));
    this.put(this.basic.cylinder, item, bar(a, neck, item.radius), 1);
    const cone = bar(neck, b, (2.4 * item.radius * head) / (6 * item.radius));
    cone.splice(9, 3, ...neck);
    this.put(this.basic.cone, item, cone, 1);
  }

  // The eye for directions of the camera such that the box is inside of the window.
  fitted() {
    const { low, high } = SCENE.box, size = Math.max(...V.sub(high, low)) || 1, camera = this.camera;
    const bar = $("bar").hidden ? 0 : 90, t = Math.tan(OPENING / 2), points = SCENE.outermost;
    const [wide, tall] = [(0.92 * innerWidth) / innerHeight, Math.max(0.3, 0.95 - bar / innerHeight)].map((x) => x * t);
    const { eye } = this.eyeAt([0, 0, 0], 1), z = V.unit(eye), x = V.unit(V.cross(this.up(), z)), y = V.cross(z, x);
    let target = V.scaled(V.add(low, high), 0.5), distance = size;
    for (let round = 0; round < 12; round++) { // moves the middle of what is seen into the middle
      const ends = [[x, wide], [y, tall]].map(([u, limit]) => {
        const sides = points.map((p) => V.sub(p, target)).map((p) => [V.dot(p, u) / limit, V.dot(p, z)]);
        return [Math.max(...sides.map(([a, d]) => a + d)), Math.max(...sides.map(([a, d]) => d - a)), limit];
      });
      for (const [k, u] of [x, y].entries())
        target = V.add(target, V.scaled(u, (0.5 * (ends[k][0] - ends[k][1])) * ends[k][2]));
      distance = Math.max(...ends.flatMap(([a, b]) => [a, b]));
    }
    target = V.add(target, V.scaled(y, -0.35 * (bar / innerHeight) * t * distance));
    Object.assign(camera, { target, distance: Math.max(distance, 0.05 * size), size });
  }

  up() {
    if (SCENE.box.planar) return [0, 1, 0];
    return SCENE.down ? V.scaled(SCENE.down, -1) : [0, 0, 1];
  }

  // Two directions along the floor, or along the wall behind a motion in the plane.
  level() {
    if (SCENE.box.planar) return [[1, 0, 0], [0, 1, 0]];
    const up = this.up(), x = Math.abs(up[0]) < 0.9 ? [1, 0, 0] : [0, 1, 0];
    const u = V.unit(V.sub(x, V.scaled(up, V.dot(x, up))));
    return [u, V.cross(up, u)];
  }

  eyeAt(target, distance) {
    const { turn, rise } = this.camera, c = Math.cos(rise), s = Math.sin(rise);
    const toward = SCENE.box.planar
      ? [Math.sin(turn) * c, s, Math.cos(turn) * c]
      : V.add(V.scaled(this.up(), s), V.add(V.scaled(this.level()[0], Math.sin(turn) * c), V.scaled(this.level()[1], -Math.cos(turn) * c)));
    return { eye: V.add(target, V.scaled(toward, distance)) };
  }

  reset() {
    Object.assign(this.camera, SCENE.box.planar ? { turn: 0.3, rise: 0.2 } : { turn: 0.65, rise: 0.42 }, { free: false });
    this.fitted();
  }

  resize() {
    const canvas = $("scene"), ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = Math.max(1, Math.round(innerWidth * ratio));
    canvas.height = Math.max(1, Math.round(innerHeight * ratio));
    if (!this.camera.free) this.reset();
    this.changed = true;
  }

  center(group) {
    const sum = [0, 0, 0];
    let count = 0;
    for (const item of this.items) {
      if (item.member !== 0 || !["solid", "dot"].includes(item.kind) || (group >= 0 && item.group !== group)) continue;
      const row = item.track.when(this.frame);
      if (!row || (item.track.fixed && group < 0)) continue;
      const shift = item.kind === "dot" ? 0 : 9;
      for (let i = 0; i < 3; i++) sum[i] += row[shift + i];
      count++;
    }
    return count ? V.scaled(sum, 1 / count) : null;
  }

  follow() {
    if ($("follow").getAttribute("aria-pressed") !== "true") return;
    const center = this.center(this.chosen);
    if (!center) return;
    if (this.followed) this.camera.target = V.add(this.camera.target, V.sub(center, this.followed));
    this.followed = center;
    this.camera.free = true;
  }

  view() {
    const { target, distance, size } = this.camera, { eye } = this.eyeAt(target, distance);
    const far = distance + 30 * size;
    const camera = product(perspective(OPENING, innerWidth / innerHeight, Math.max(distance / 200, far / 20000), far), lookFrom(eye, target, this.up()));
    return { camera, eye };
  }

  look() {
    const { low, high, planar } = SCENE.box, { size } = this.camera, dark = document.documentElement.dataset.theme === "dark";
    const middle = V.scaled(V.add(low, high), 0.5), extent = 0.72 * V.length(V.sub(high, low)) || 1;
    const [u, v] = this.level(), up = planar ? [0, 0, 1] : this.up();
    const sun = V.unit(planar ? [-0.45, 0.75, 0.9] : V.add(V.scaled(up, 1.1), V.add(V.scaled(u, -0.5), V.scaled(v, -0.45))));
    const from = V.add(middle, V.scaled(sun, 3 * extent));
    const light = product(orthographic(extent * 1.25, 0.5 * extent, 6 * extent), lookFrom(from, middle, v));
    const cell = 10 ** Math.floor(Math.log10(size / 3));
    const lowest = Math.min(...SCENE.outermost.map((p) => V.dot(p, up))) - (planar ? 0.024 : 0.004) * size;
    const center = V.add(middle, V.scaled(up, lowest - V.dot(middle, up)));
    const floor = { center, u, v, reach: 9 * size, middle: [V.dot(center, u), V.dot(center, v)], cell };
    const [paper, ink] = dark ? [[0.078, 0.094, 0.118], [0.75, 0.8, 0.86]] : [[0.969, 0.973, 0.98], [0.2, 0.25, 0.3]];
    return { sun, light, sky: this.up(), floor, paper, ink };
  }

  draw() {
    this.follow();
    this.arrange();
    const look = this.look();
    this.renderer.draw(this.view(), look, this.chosen);
    this.texts();
    this.axes();
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }

  time() {
    const k = Math.min(Math.floor(this.frame), this.frames - 2), s = this.frame - k, times = SCENE.times;
    return times[k] + s * (times[k + 1] - times[k]);
  }

  texts() {
    $("clock").textContent = `t = ${this.time().toFixed(SCENE.digits)} s`;
    $("time").value = this.frame;
    const group = SCENE.groups[this.chosen], card = $("card");
    card.hidden = !group;
    if (!group) return;
    const rows = [];
    const cell = (x) => x.toPrecision(4);
    if (group.mass !== undefined) rows.push(["mass", `${group.mass.toPrecision(4)} kg`]);
    const here = this.center(this.chosen);
    if (here) here.slice(0, SCENE.box.planar ? 2 : 3).forEach((x, i) => rows.push(["xyz"[i], `${cell(x)} m`]));
    const values = group.track && group.track.when(this.frame);
    if (values) group.names.forEach((name, i) => rows.push([name, cell(values[i])]));
    card.replaceChildren();
    card.appendChild(document.createElement("b")).textContent = group.name;
    const table = card.appendChild(document.createElement("table"));
    for (const row of rows) {
      const line = table.insertRow();
      for (const text of row) line.insertCell().textContent = text;
    }
  }

  // The directions of x, y, z and of gravity, at the lower left.
  axes() {
    const ctx = $("axes").getContext("2d"), { eye } = this.eyeAt([0, 0, 0], 1);
    const z = V.unit(eye), x = V.unit(V.cross(this.up(), z)), y = V.cross(z, x);
    ctx.clearRect(0, 0, 192, 192);
    const colors = ["#d55e00", "#009e73", "#0072b2"], ink = getComputedStyle(document.body).color;
    const arrows = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((u, i) => [u, "xyz"[i], colors[i]]);
    if (SCENE.down) arrows.push([SCENE.down, "g", ink]);
    for (const [u, label, color] of arrows) {
      const [px, py] = [V.dot(u, x) * 52, -V.dot(u, y) * 52], [cx, cy] = [96, 96], n = Math.hypot(px, py);
      ctx.strokeStyle = ctx.fillStyle = color;
      ctx.lineWidth = label === "g" ? 6 : 4;
      ctx.font = "bold 24px system-ui, sans-serif";
      if (n < 8) continue;
      const [ux, uy] = [px / n, py / n];
      ctx.beginPath();
      ctx.moveTo(cx, cy);
      ctx.lineTo(cx + px - 6 * ux, cy + py - 6 * uy);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(cx + px + 6 * ux, cy + py + 6 * uy);
      ctx.lineTo(cx + px - 10 * ux - 8 * uy, cy + py - 10 * uy + 8 * ux);
      ctx.lineTo(cx + px - 10 * ux + 8 * uy, cy + py - 10 * uy - 8 * ux);
      ctx.fill();
      ctx.fillText(label, cx + px + 22 * ux - 7, cy + py + 22 * uy + 8);
    }
  }

  choose(x, y) {
    const ratio = $("scene").width / innerWidth;
    this.chosen = this.renderer.pick(this.view(), this.look(), Math.round(x * ratio), Math.round(y * ratio));
    this.followed = null;
    this.changed = true;
  }

  play(on) {
    if (on && this.frame >= this.frames - 1) this.frame = 0;
    this.playing = on;
    $("play").textContent = on ? "\u2016" : "\u25b6";
    this.changed = true;
  }

  controls() {
    const canvas = $("scene"), camera = this.camera, root = document.documentElement;
    $("time").max = this.frames - 1;
    $("time").oninput = (event) => { this.play(false); this.frame = Number(event.target.value); this.changed = true; };
    $("play").onclick = () => this.play(!this.playing);
    $("fit").onclick = () => { this.reset(); this.changed = true; };
    $("theme").onclick = () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; this.changed = true; };
    const toggle = (id, done) => {
      $(id).onclick = () => {
        const on = $(id).getAttribute("aria-pressed") !== "true";
        $(id).setAttribute("aria-pressed", String(on));
        done(on);
        this.changed = true;
      };
    };
    toggle("follow", () => { this.followed = null; });
    toggle("parts", (on) => { $("list").hidden = !on; });
    this.list();
    const held = new Map();
    let moved = 0, gap = 0;
    canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); held.set(event.pointerId, event); moved = 0; };
    canvas.onpointermove = (event) => {
      const last = held.get(event.pointerId);
      if (!last) return;
      const dx = event.clientX - last.clientX, dy = event.clientY - last.clientY;
      moved += Math.abs(dx) + Math.abs(dy);
      held.set(event.pointerId, event);
      if (held.size > 1) {
        const [a, b] = [...held.values()], now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (gap) camera.distance *= gap / now;
        gap = now;
      } else if (event.shiftKey || event.buttons === 2 || event.buttons === 4) this.shift(dx, dy);
      else {
        camera.turn -= 0.008 * dx;
        camera.rise = Math.max(-1.5, Math.min(1.5, camera.rise + 0.008 * dy));
      }
      if (moved > 4) camera.free = true;
      this.changed = true;
    };
    canvas.onpointerup = canvas.onpointercancel = (event) => {
      held.delete(event.pointerId);
      gap = 0;
      if (moved < 5 && event.type === "pointerup") this.choose(event.clientX, event.clientY);
    };
    canvas.oncontextmenu = (event) => event.preventDefault();
    canvas.onwheel = (event) => {
      event.preventDefault();
      camera.distance *= Math.exp(0.0012 * event.deltaY);
      camera.free = this.changed = true;
    };
    addEventListener("keydown", (event) => {
      if (event.target.tagName === "SELECT") return;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === " ") { event.preventDefault(); this.play(!this.playing); }
      else if (event.key === "Home") $("fit").click();
      else if (event.key === "f") $("follow").click();
      else if (step) { this.play(false); this.frame = Math.max(0, Math.min(this.frames - 1, Math.round(this.frame) + step)); }
      this.changed = true;
    });
    addEventListener("resize", () => this.resize());
  }

  shift(dx, dy) {
    const { eye } = this.eyeAt([0, 0, 0], 1), z = V.unit(eye), x = V.unit(V.cross(this.up(), z)), y = V.cross(z, x);
    const s = (2 * this.camera.distance * Math.tan(OPENING / 2)) / innerHeight;
    this.camera.target = V.add(this.camera.target, V.add(V.scaled(x, -s * dx), V.scaled(y, s * dy)));
  }

  list() {
    const entries = SCENE.groups.map((group, k) => [group.name, k]);
    if (this.items.some((item) => item.member > 0)) entries.unshift(["ghosts", -1]);
    for (const [name, k] of entries) {
      const label = $("list").appendChild(document.createElement("label"));
      const box = label.appendChild(document.createElement("input"));
      box.type = "checkbox";
      box.checked = true;
      box.onchange = () => { this.hidden[box.checked ? "delete" : "add"](k); this.changed = true; };
      label.append(` ${name}`);
    }
  }

  // Settings after the # of the address: t, theme, play=0, bare=1, body, turn, rise.
  settings(hash) {
    const of = new URLSearchParams(hash.slice(1));
    if (of.has("theme")) document.documentElement.dataset.theme = of.get("theme");
    if (of.get("bare") === "1") for (const id of ["bar", "legend", "axes"]) $(id).hidden = true;
    if (of.has("body")) this.chosen = SCENE.groups.findIndex((group) => group.name === of.get("body"));
    for (const angle of ["turn", "rise"]) if (of.has(angle)) this.camera[angle] = Number(of.get(angle));
    if (of.has("turn") || of.has("rise")) this.fitted();
    if (of.has("t")) {
      const t = Number(of.get("t")), sign = Math.sign(SCENE.times[this.frames - 1] - SCENE.times[0]);
      this.frame = Math.max(0, SCENE.times.findLastIndex((x) => sign * x <= sign * t + 1e-9));
    }
    this.play(of.get("play") !== "0");
  }

  run() {
    let last = performance.now();
    const tick = (now) => {
      const step = Math.min(now - last, 200) / 1000;
      last = now;
      if (this.playing) {
        this.frame += step * SCENE.fps * Number($("speed").value);
        const over = this.frame - (this.frames - 1); // rests at the end for a moment
        if (over > 0) {
          this.rest = (this.rest || 0) + step;
          this.frame = this.rest < 0.5 ? this.frames - 1 : 0;
          if (!this.frame) this.rest = 0;
        }
      }
      if (this.playing || this.changed) {
        this.changed = false;
        this.draw();
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
}

addEventListener("error", (event) => { document.documentElement.dataset.fault = event.message; });

(async () => {
  const root = document.documentElement;
  root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try {
    $("label").textContent = SCENE.label;
    for (const { color, text } of SCENE.legend) {
      const line = $("legend").appendChild(document.createElement("div"));
      line.appendChild(document.createElement("i")).style.background = color;
      line.append(text);
    }
    const player = new Player(await unpacked(NUMBERS));
    player.settings(location.hash);
    addEventListener("hashchange", () => player.settings(location.hash));
    player.draw();
    player.run();
    root.dataset.ready = "1";
  } catch (fault) {
    root.dataset.fault = fault.message;
    const text = document.body.appendChild(document.createElement("p"));
    text.id = "fault";
    text.textContent = fault.message;
    throw fault;
  }
})();
