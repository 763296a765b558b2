"use strict";
// Draws instances of triangle meshes with a shadow. Matrices are arrays of columns.

const V = {
  add: (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]],
  sub: (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]],
  scaled: (a, s) => [a[0] * s, a[1] * s, a[2] * s],
  dot: (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2],
  cross: (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]],
  length: (a) => Math.hypot(a[0], a[1], a[2]),
  unit: (a) => V.scaled(a, 1 / (V.length(a) || 1)),
};

function product(a, b) {
  const c = new Float32Array(16);
  for (let j = 0; j < 4; j++)
    for (let i = 0; i < 4; i++)
      for (let k = 0; k < 4; k++) c[4 * j + i] += a[4 * k + i] * b[4 * j + k];
  return c;
}

function lookFrom(eye, target, up) {
  const z = V.unit(V.sub(eye, target)), x = V.unit(V.cross(up, z)), y = V.cross(z, x);
  return new Float32Array([
    x[0], y[0], z[0], 0, x[1], y[1], z[1], 0, x[2], y[2], z[2], 0,
    -V.dot(x, eye), -V.dot(y, eye), -V.dot(z, eye), 1,
  ]);
}

function perspective(angle, aspect, near, far) {
  const f = 1 / Math.tan(angle / 2), d = 1 / (near - far);
  return new Float32Array([f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (near + far) * d, -1, 0, 0, 2 * near * far * d, 0]);
}

function orthographic(size, near, far) {
  const d = 1 / (near - far);
  return new Float32Array([1 / size, 0, 0, 0, 0, 1 / size, 0, 0, 0, 0, 2 * d, 0, 0, 0, (near + far) * d, 1]);
}

// Vertices of triangles with normals: smooth where faces meet at less than about 40 degrees.
function withNormals(vertices, faces) {
  const count = faces.length / 3, normals = new Float32Array(3 * count);
  const at = (i) => [vertices[3 * i], vertices[3 * i + 1], vertices[3 * i + 2]];
  const places = new Map(), ids = new Int32Array(vertices.length / 3);
  for (let i = 0; i < ids.length; i++) {
    const key = at(i).map((x) => Math.fround(x)).join();
    if (!places.has(key)) places.set(key, places.size);
    ids[i] = places.get(key);
  }
  const around = Array.from({ length: places.size }, () => []);
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [0, 1, 2].map((k) => at(faces[3 * f + k]));
    normals.set(V.cross(V.sub(b, a), V.sub(c, a)), 3 * f);
    for (let k = 0; k < 3; k++) around[ids[faces[3 * f + k]]].push(f);
  }
  const of = (f) => [normals[3 * f], normals[3 * f + 1], normals[3 * f + 2]];
  const units = new Float32Array(3 * count);
  for (let f = 0; f < count; f++) units.set(V.unit(of(f)), 3 * f);
  const data = new Float32Array(18 * count);
  for (let f = 0; f < count; f++)
    for (let k = 0; k < 3; k++) {
      const i = faces[3 * f + k];
      let sum = [0, 0, 0];
      for (const g of around[ids[i]]) {
        const cosine = units[3 * f] * units[3 * g] + units[3 * f + 1] * units[3 * g + 1] + units[3 * f + 2] * units[3 * g + 2];
        if (cosine > 0.77) sum = V.add(sum, of(g));
      }
      data.set([...at(i), ...V.unit(sum)], 6 * (3 * f + k));
    }
  return data;
}

const VERTEX = `#version 300 es
layout(location=0) in vec3 position; layout(location=1) in vec3 normal;
layout(location=2) in vec3 cx; layout(location=3) in vec3 cy; layout(location=4) in vec3 cz;
layout(location=5) in vec3 origin; layout(location=6) in vec4 color; layout(location=7) in float group;
uniform mat4 camera, light;
out vec3 world, n; out vec4 tint, shaded; flat out float id;
void main() {
  mat3 m = mat3(cx, cy, cz);
  world = m * position + origin;
  n = mat3(cross(cy, cz), cross(cz, cx), cross(cx, cy)) * normal * sign(determinant(m));
  tint = color; id = group; shaded = light * vec4(world, 1.0);
  gl_Position = camera * vec4(world, 1.0);
}`;
const SHADOW = `
uniform highp sampler2DShadow shadows;
float lit(vec4 place, float slope) {
  vec3 p = place.xyz / place.w * 0.5 + 0.5;
  if (any(lessThan(p, vec3(0.0))) || any(greaterThan(p, vec3(1.0)))) return 1.0;
  float sum = 0.0;
  for (int i = -1; i <= 1; i++) for (int j = -1; j <= 1; j++)
    sum += texture(shadows, vec3(p.xy + vec2(i, j) / 2048.0, p.z - 0.0012 - 0.003 * slope));
  return sum / 9.0;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 world, n; in vec4 tint, shaded; flat in float id;
uniform vec3 eye, sun, sky; uniform float picking, chosen; out vec4 result;
${SHADOW}
void main() {
  if (picking > 0.5) { result = vec4(mod(id + 1.0, 256.0) / 255.0, floor((id + 1.0) / 256.0) / 255.0, 0.0, 1.0); return; }
  vec3 toEye = normalize(eye - world), m = normalize(n);
  if (dot(m, toEye) < 0.0) m = -m;
  float facing = dot(m, sun), shade = lit(shaded, 1.0 - abs(facing));
  float diffuse = max(facing, 0.0) * shade;
  float gloss = pow(max(dot(m, normalize(sun + toEye)), 0.0), 40.0) * shade;
  float above = 0.5 + 0.5 * dot(m, sky), rim = pow(1.0 - max(dot(m, toEye), 0.0), 3.0);
  vec3 linear = pow(tint.rgb, vec3(2.2));
  linear = linear * (0.25 + 0.3 * above + 0.85 * diffuse) + 0.12 * gloss + 0.05 * rim;
  if (abs(id - chosen) < 0.5) linear = 1.15 * linear + vec3(0.05, 0.045, 0.0) + 0.35 * rim;
  result = vec4(pow(linear, vec3(1.0 / 2.2)), tint.a);
}`;
const FLOOR_VERTEX = `#version 300 es
layout(location=0) in vec2 position;
uniform mat4 camera, light; uniform vec3 center, u, v; uniform float reach;
out vec2 place; out vec4 shaded;
void main() {
  vec3 x = center + reach * (position.x * u + position.y * v);
  place = position * reach + vec2(dot(center, u), dot(center, v)); shaded = light * vec4(x, 1.0);
  gl_Position = camera * vec4(x, 1.0);
}`;
const FLOOR_FRAGMENT = `#version 300 es
precision highp float;
in vec2 place; in vec4 shaded; uniform vec2 middle; uniform float cell, reach; uniform vec3 ink, paper; out vec4 result;
${SHADOW}
float lines(float size) {
  vec2 x = place / size, w = fwidth(x), d = abs(fract(x - 0.5) - 0.5) / max(w, 1e-6);
  return (1.0 - min(min(d.x, d.y), 1.0)) * (1.0 - smoothstep(0.15, 0.5, max(w.x, w.y)));
}
void main() {
  float fade = 1.0 - smoothstep(0.15, 1.0, length(place - middle) / reach);
  float grid = 0.10 * lines(cell) + 0.22 * lines(5.0 * cell);
  float dark = 0.32 * (1.0 - lit(shaded, 0.0));
  vec3 color = mix(paper, ink, grid);
  result = vec4(color * (1.0 - dark), max(fade * max(grid * 3.0, 0.35), dark * fade));
}`;

const INSTANCE = 17; // numbers: three axes, origin, colour, group

class Renderer {
  constructor(canvas) {
    const gl = (this.gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true }));
    if (!gl) throw new Error("This page needs WebGL 2, which this browser does not offer.");
    this.canvas = canvas;
    this.batches = [];
    this.solid = this.program(VERTEX, FRAGMENT);
    this.floor = this.program(FLOOR_VERTEX, FLOOR_FRAGMENT);
    this.square = gl.createVertexArray();
    gl.bindVertexArray(this.square);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    this.shadows = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.shadows);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.DEPTH_COMPONENT24, 2048, 2048);
    for (const [key, value] of [
      [gl.TEXTURE_COMPARE_MODE, gl.COMPARE_REF_TO_TEXTURE], [gl.TEXTURE_COMPARE_FUNC, gl.LEQUAL],
      [gl.TEXTURE_MIN_FILTER, gl.LINEAR], [gl.TEXTURE_MAG_FILTER, gl.LINEAR],
      [gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE], [gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE],
    ]) gl.texParameteri(gl.TEXTURE_2D, key, value);
    this.depth = gl.createFramebuffer();
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.depth);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, this.shadows, 0);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  }

  program(vertex, fragment) {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    const places = {};
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const name = gl.getActiveUniform(program, i).name;
      places[name] = gl.getUniformLocation(program, name);
    }
    return { program, places };
  }

  // A mesh with room for a number of instances, which are written into `instances`.
  batch(vertices, faces, room) {
    const gl = this.gl, data = withNormals(vertices, faces), array = gl.createVertexArray();
    gl.bindVertexArray(array);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
    for (const k of [0, 1]) {
      gl.enableVertexAttribArray(k);
      gl.vertexAttribPointer(k, 3, gl.FLOAT, false, 24, 12 * k);
    }
    const buffer = gl.createBuffer(), instances = new Float32Array(INSTANCE * room);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, instances.byteLength, gl.DYNAMIC_DRAW);
    [[2, 3, 0], [3, 3, 3], [4, 3, 6], [5, 3, 9], [6, 4, 12], [7, 1, 16]].forEach(([k, size, offset]) => {
      gl.enableVertexAttribArray(k);
      gl.vertexAttribPointer(k, size, gl.FLOAT, false, 4 * INSTANCE, 4 * offset);
      gl.vertexAttribDivisor(k, 1);
    });
    const batch = { array, buffer, instances, count: 0, vertices: data.length / 6, see_through: false };
    this.batches.push(batch);
    return batch;
  }

  drawn(batches) {
    const gl = this.gl;
    for (const batch of batches) {
      if (!batch.count) continue;
      gl.bindVertexArray(batch.array);
      gl.drawArraysInstanced(gl.TRIANGLES, 0, batch.vertices, batch.count);
    }
  }

  use({ program, places }, values) {
    const gl = this.gl;
    gl.useProgram(program);
    for (const [name, value] of Object.entries(values)) {
      const place = places[name];
      if (place === undefined || place === null) continue;
      if (value.length === 16) gl.uniformMatrix4fv(place, false, value);
      else if (value.length === 3) gl.uniform3fv(place, value);
      else if (value.length === 2) gl.uniform2fv(place, value);
      else gl.uniform1f(place, value);
    }
    if (places.shadows) gl.uniform1i(places.shadows, 0);
  }

  // Draws everything. `view` has camera and eye, `look` light, sun, sky, floor and colours.
  draw(view, look, chosen) {
    const gl = this.gl, common = { ...look, ...view, picking: 0, chosen };
    const full = this.batches.filter((b) => !b.see_through), faint = this.batches.filter((b) => b.see_through);
    for (const batch of this.batches) {
      if (!batch.count) continue;
      gl.bindBuffer(gl.ARRAY_BUFFER, batch.buffer);
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, batch.instances.subarray(0, INSTANCE * batch.count));
    }
    gl.enable(gl.DEPTH_TEST);
    gl.bindTexture(gl.TEXTURE_2D, null);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.depth);
    gl.viewport(0, 0, 2048, 2048);
    gl.clear(gl.DEPTH_BUFFER_BIT);
    this.use(this.solid, { ...common, camera: look.light, picking: 1 });
    this.drawn(full.filter((b) => !b.no_shadow));
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.bindTexture(gl.TEXTURE_2D, this.shadows);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...look.paper, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.use(this.solid, common);
    this.drawn(full);
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.use(this.floor, { ...common, ...look.floor });
    gl.bindVertexArray(this.square);
    gl.depthMask(false);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    gl.depthMask(true);
    this.use(this.solid, common);
    gl.colorMask(false, false, false, false); // only the nearest surface of a ghost is seen
    this.drawn(faint);
    gl.colorMask(true, true, true, true);
    gl.depthFunc(gl.LEQUAL);
    this.drawn(faint);
    gl.depthFunc(gl.LESS);
    gl.disable(gl.BLEND);
  }

  // The group at a pixel of the last picture, or -1.
  pick(view, look, x, y) {
    const gl = this.gl, { width, height } = this.canvas;
    if (!this.picture) this.picture = { frame: gl.createFramebuffer(), color: gl.createRenderbuffer(), depth: gl.createRenderbuffer() };
    const { frame, color, depth } = this.picture;
    gl.bindTexture(gl.TEXTURE_2D, this.shadows);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    for (const [buffer, kind, place] of [[color, gl.RGBA8, gl.COLOR_ATTACHMENT0], [depth, gl.DEPTH_COMPONENT24, gl.DEPTH_ATTACHMENT]]) {
      gl.bindRenderbuffer(gl.RENDERBUFFER, buffer);
      gl.renderbufferStorage(gl.RENDERBUFFER, kind, width, height);
      gl.framebufferRenderbuffer(gl.FRAMEBUFFER, place, gl.RENDERBUFFER, buffer);
    }
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.use(this.solid, { ...look, ...view, picking: 1, chosen: -1 });
    this.drawn(this.batches.filter((b) => !b.see_through));
    const pixel = new Uint8Array(4);
    gl.readPixels(x, height - 1 - y, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    return pixel[0] + 256 * pixel[1] - 1;
  }
}
