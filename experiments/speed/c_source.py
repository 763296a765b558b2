"""C from the scalar graph of lanes: every scalar a vector of trajectories, every operation a line.

What is a loop in the graph is a loop here. A group of trajectories goes through all of it at once,
as one or several interleaved copies of the same lines: with several, the processor has something to
do while it waits for the result of a division.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.speed.routes import Unavailable
from jaxmech.compiler.backends.llvm.trigonometry import COSINE, LARGE, PARTS, SINE
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import Live, LiveLoop, branch_outputs
from jaxmech.compiler.ir.loops import Loop, Scanned, SequenceOfNodes

_PRELUDE = """\
#include <math.h>

#if defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX__)
#define WIDTH 4
#else
#define WIDTH 2
#endif
#define INLINE static inline __attribute__((always_inline))

typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef long ints __attribute__((vector_size(8 * WIDTH)));  // and -1 or 0 for true or false
typedef struct { vec sin, cos; } pair;

INLINE vec all(double x) { return x - (vec){0}; }  // keeps the sign of -0.0
INLINE ints all_ints(long x) { return x - (ints){0}; }
INLINE vec number(ints x) { return __builtin_convertvector(x, vec); }
INLINE ints integer(vec x) { return __builtin_convertvector(x, ints); }
INLINE ints choose_ints(ints which, ints yes, ints no) { return (yes & which) | (no & ~which); }
INLINE vec choose(ints which, vec yes, vec no)
{
  return (vec)choose_ints(which, (ints)yes, (ints)no);
}
INLINE vec absolute(vec x) { return (vec)((ints)x & 0x7fffffffffffffff); }
INLINE vec larger(vec x, vec y) { return choose((x > y) | (x != x), x, y); }
INLINE vec smaller(vec x, vec y) { return choose((x < y) | (x != x), x, y); }
INLINE int some(ints x) { long y = 0; for (int k = 0; k < WIDTH; k++) y |= x[k]; return y != 0; }
INLINE vec signum(vec x) { return choose(x > 0, all(1), choose(x < 0, all(-1), x)); }

INLINE vec load(const double *x, long stride, long first, long size)
{
  vec y;
  for (int k = 0; k < WIDTH; k++) y[k] = x[(first + k < size ? first + k : size - 1) * stride];
  return y;
}
INLINE void store(double *x, long stride, long first, long size, vec y)
{
  for (int k = 0; k < WIDTH && first + k < size; k++) x[(first + k) * stride] = y[k];
}

#define UNARY(fn) \\
  INLINE vec each_##fn(vec x) \\
  { vec y; for (int k = 0; k < WIDTH; k++) y[k] = fn(x[k]); return y; }
#define BINARY(fn) \\
  INLINE vec each_##fn(vec x, vec y) \\
  { vec z; for (int k = 0; k < WIDTH; k++) z[k] = fn(x[k], y[k]); return z; }
"""

_SINE_AND_COSINE = """
INLINE vec fused(vec x, vec y, vec z)
{
  for (int k = 0; k < WIDTH; k++) z[k] = fma(x[k], y[k], z[k]);
  return z;
}
INLINE vec turned(vec x, ints quarters)
{
  return (vec)((ints)x ^ (quarters << 62 & all_ints(1L << 63)));
}
INLINE pair sine_and_cosine(vec x)  // as in jaxmech.compiler.backends.llvm.trigonometry
{
  vec raised = fused(x, all(M_2_PI), all(LARGE)), k = raised - all(LARGE), r = x;
  r = fused(k, all(-PART0), r);
  r = fused(k, all(-PART1), r);
  r = fused(k, all(-PART2), r);
  vec z = r * r;
  vec sine = r + r * z * SINE;
  vec cosine = 1 - 0.5 * z + z * z * COSINE;
  ints quarters = (ints)raised;
  ints odd = (quarters & 1) != 0;
  vec s = choose(odd, cosine, sine), c = choose(odd, sine, cosine);
  return (pair){turned(s, quarters), turned(c, quarters + 1)};
}
"""

_OPERATORS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
}
_LOGIC = {"and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}", "not": "~{}"}
_UNARY = (
    "sqrt", "floor", "ceil", "exp", "exp2", "expm1", "log", "log1p", "cbrt", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
)  # fmt: skip
_BINARY = {"pow": "pow", "atan2": "atan2", "nextafter": "nextafter", "rem": "fmod"}
_EXPRESSIONS: Mapping[str, Mapping[str, str]] = {
    "vec": {
        **_OPERATORS,
        **{op: f"each_{op}({{}})" for op in _UNARY},
        **{op: f"each_{fn}({{}}, {{}})" for op, fn in _BINARY.items()},
        "abs": "absolute({})",
        "max": "larger({}, {})",
        "min": "smaller({}, {})",
        "sign": "signum({})",
        "is_finite": "{0} - {0} == 0",
        "rsqrt": "1 / each_sqrt({})",
        "convert_element_type to ints": "integer({})",
        "convert_element_type to truth": "{} != 0",
    },
    "ints": {
        **_OPERATORS,
        **_LOGIC,
        "rem": "{} % {}",
        "abs": "choose_ints({0} < 0, -{0}, {0})",
        "sign": "({0} < 0) - ({0} > 0)",
        "max": "choose_ints({0} > {1}, {0}, {1})",
        "min": "choose_ints({0} < {1}, {0}, {1})",
        "convert_element_type to vec": "number({})",
        "convert_element_type to ints": "{}",
        "convert_element_type to truth": "{} != 0",
    },
    "truth": {
        **_LOGIC,
        "eq": "{} == {}",
        "ne": "{} != {}",
        "convert_element_type to vec": "number(-{})",
        "convert_element_type to ints": "-{}",
    },
}


def source(kernel: Kernel, copies: int = 1) -> str:
    """A program with one function, `run(size, threads, arguments ..., results ...)`.

    Arguments and results are arrays of shape (size, numbers), float64.

    Args:
        kernel: what is computed for one trajectory.
        copies: how many vectors of trajectories go through it at once, interleaved line by line.

    Raises:
        Unavailable: something in the graph has no C here.
    """
    outs = [out for out in kernel.outs if isinstance(out, np.ndarray)]
    if len(outs) < len(kernel.outs) or len(kernel.sequences) > 0:
        raise Unavailable("a whole sequence as an argument or a result")
    if any(aval.dtype != np.float64 for aval in (*kernel.avals, *kernel.out_avals)):
        raise Unavailable("arguments or results that are not float64")
    inputs = [
        f"load(in{k} + {place}, {aval.size}, first@, size)"
        for k, aval in enumerate(kernel.avals)
        for place in range(aval.size)
    ]
    writer = _Writer(kernel.reader.graph, kernel.reader.loops, kernel.live, inputs)
    writer.write()
    stores = [
        f"store(out{k} + {place}, {out.size}, first@, size, {writer.name(int(number))});"
        for k, out in enumerate(outs)
        for place, number in enumerate(out.ravel())
    ]
    lines = ["const long first@ = first + @ * WIDTH;", *writer.lines, *stores]
    names = [f"in{k}" for k in range(len(kernel.avals))] + [f"out{k}" for k in range(len(outs))]
    parameters = [f"{'const ' * name.startswith('in')}double *{name}" for name in names]
    return "\n".join(
        [
            *_prelude(),
            f"static void group(long first, long size, {', '.join(parameters)})\n{{",
            *_interleaved(lines, copies),
            f"}}\n\nvoid run(long size, int threads, {', '.join(parameters)})\n{{",
            "#pragma omp parallel for schedule(dynamic) num_threads(threads)",
            f"for (long first = 0; first < size; first += {copies} * WIDTH)",
            f"  group(first, size, {', '.join(names)});\n}}\n",
        ]
    )


def _prelude() -> list[str]:
    lines = [f"UNARY({fn})" for fn in (*_UNARY, "rint", "round")]
    lines += [f"BINARY({fn})" for fn in _BINARY.values()]
    lines += [f"#define LARGE {LARGE.hex()}"]
    lines += [f"#define PART{k} {part.hex()}" for k, part in enumerate(PARTS)]
    for name, coefficients in (("SINE", SINE), ("COSINE", COSINE)):
        polynomial = coefficients[0].hex()
        for coefficient in coefficients[1:]:
            polynomial = f"({polynomial} * z + {coefficient.hex()})"
        lines.append(f"#define {name} {polynomial}")
    return [_PRELUDE, *lines, _SINE_AND_COSINE]


def _interleaved(lines: Sequence[str], copies: int) -> list[str]:
    """Every line with an @ once for each copy, with its number in that place."""
    return [
        line.replace("@", str(copy))
        for line in lines
        for copy in range(copies if "@" in line else 1)
    ]


class _Writer:
    """Writes one graph; the body of a loop gets a writer of its own.

    Args:
        graph: the scalars.
        loops: the loops among them.
        live: which of them are computed.
        leaves: C of the `input` or the `carry` of each number.
        around: the writer of the graph around the loop whose body this is.
    """

    def __init__(
        self,
        graph: Graph,
        loops: list[Loop],
        live: Live,
        leaves: Sequence[str] | Mapping[int, str],
        around: "_Writer | None" = None,
    ) -> None:
        self.graph, self.loops, self.live = graph, loops, live
        self.leaves, self.around = leaves, around
        self.depth: int = 0 if around is None else around.depth + 1
        self.lines: list[str] = []
        self._written: set[str] = set()

    def write(self) -> None:
        """Every node that is needed, in the order of their making."""
        for number in sorted(self.live.nodes):
            node = self.graph.nodes[number]
            if node.op == "result":
                loop = node.params[0]
                if self._is_new(f"loop {loop}"):
                    self._loop(loop, self.loops[loop], self.live.loops[loop])
            elif node.op == "branch" and node.params in self.live.branches:
                if self._is_new(f"branch {node.params}"):
                    self._branch(node.params)
            else:
                self._node(number)

    def _node(self, number: int) -> None:
        node = self.graph.nodes[number]
        if node.op not in ("const", "capture", "carry"):
            text = self._expression(node)
            self.lines.append(f"const {_type(node)} {self.name(number)} = {text};")

    def _branch(self, branch: int) -> None:
        nodes = self.graph.nodes
        gives = branch_outputs(self.graph, self.live, branch)
        for i in gives:
            self.lines.append(
                f"{_type(nodes[i])} {self.name(i)} = {self.name(nodes[i].inputs[1])};"
            )
        taken = f"taken{branch}"
        self.lines.append(f"int {taken} = 0;")
        self.lines.append(f"{taken} |= some({self.name(nodes[gives[0]].inputs[0])});")
        self.lines.append(f"if (__builtin_expect({taken}, 0)) {{")
        before = set(self._written)
        for i in sorted(self.live.branches[branch]):
            self._node(i)
        self._written = before
        self.lines += [f"{self.name(i)} = {self._choice(nodes[i])};" for i in gives]
        self.lines.append("}")

    def name(self, number: int) -> str:
        """C of a node that is written already."""
        node = self.graph.nodes[number]
        match node.op:
            case "const":
                return _literal(node, self.graph.values[number])
            case "capture":
                assert self.around is not None
                return self.around.name(node.params)
            case "carry":
                return self.leaves[node.params]
            case "result":
                return self._result(*node.params)
        return f"x{self.depth}_{number}_@"

    def _result(self, loop: int, place: int) -> str:
        return f"c{self.depth}_{loop}_{place}_@"

    def _is_new(self, what: str) -> bool:
        new = what not in self._written
        self._written.add(what)
        return new

    def _expression(self, node: Node) -> str:
        names, params = [self.name(i) for i in node.inputs], node.params
        match node.op:
            case "input":
                return self.leaves[params]
            case "element":
                return f"s{self.depth}_{params[0]}_@[at{self.depth}][{params[1]}]"
            case "sin" | "cos":
                return f"{self._pair(*node.inputs)}.{node.op}"
            case "round":
                to_even = dict(params)["rounding_method"] == 1
                return f"each_{'rint' if to_even else 'round'}({names[0]})"
            case "select_n" | "branch":
                return self._choice(node)
        first = self.graph.nodes[node.inputs[0]]
        op = f"{node.op} to {_kind(node)}" if node.op == "convert_element_type" else node.op
        if op not in _EXPRESSIONS[_kind(first)]:
            raise Unavailable(f"the operation `{node.op}` of {first.dtype}")
        return _EXPRESSIONS[_kind(first)][op].format(*names)

    def _pair(self, angle: int) -> str:
        pair = f"p{self.depth}_{angle}_@"
        if self._is_new(pair):
            self.lines.append(f"const pair {pair} = sine_and_cosine({self.name(angle)});")
        return pair

    def _choice(self, node: Node) -> str:
        which, text, *others = (self.name(i) for i in node.inputs)
        is_truth = _kind(self.graph.nodes[node.inputs[0]]) == "truth"
        choose = "choose" if _kind(node) == "vec" else "choose_ints"
        for k, other in enumerate(others, start=1):
            text = f"{choose}({which if is_truth else f'{which} == {k}'}, {other}, {text})"
        return text

    def _loop(self, number: int, loop: Loop, part: LiveLoop) -> None:
        if part.stacked or part.body is None:
            raise Unavailable("a loop that saves a sequence")
        carry = {k: self._result(number, k) for k in sorted(part.carry)}
        for k, name in carry.items():
            start = loop.init[k]
            self.lines.append(f"{_type(self.graph.nodes[start])} {name} = {self.name(start)};")
        body = _Writer(loop.body, loop.inner, part.body, carry, self)
        body.write()
        leaves = (loop.body.nodes[i] for i in part.body.nodes)
        self.lines.append("{")
        for k in sorted({leaf.params[0] for leaf in leaves if leaf.op == "element"}):
            self.lines.append(self._steps(f"s{body.depth}_{k}_@", loop.scanned[k]))
        self.lines.append(f"for (long i = 0; i < {loop.length}; i++) {{")
        at = f"{loop.length - 1} - i" if loop.reverse else "i"
        self.lines.append(f"const long at{body.depth} = {at};")
        self.lines += body.lines
        # All ends before the first is taken over: a carry can become another carry.
        for k, name in carry.items():
            end = loop.carry[k]
            self.lines.append(f"const {_type(loop.body.nodes[end])} {name}end = {body.name(end)};")
        self.lines += [f"{name} = {name}end;" for name in carry.values()]
        self.lines.append("}}")

    def _steps(self, name: str, steps: Scanned) -> str:
        if not isinstance(steps, SequenceOfNodes):
            raise Unavailable("a loop over a whole sequence")
        rows = steps.ids.reshape(len(steps.ids), -1)
        values = ", ".join("{" + ", ".join(self.name(int(i)) for i in row) + "}" for row in rows)
        return f"const {_type(steps)} {name}[][{rows.shape[1]}] = {{{values}}};"


def _kind(typed: Node | Scanned) -> str:
    if typed.dtype == np.float64:
        return "vec"
    if typed.dtype.kind not in "bi":
        raise Unavailable(f"numbers of type {typed.dtype}")
    return "truth" if typed.dtype.kind == "b" else "ints"


def _type(typed: Node | Scanned) -> str:
    return "vec" if _kind(typed) == "vec" else "ints"


def _literal(node: Node, value: Any) -> str:
    if _kind(node) != "vec":
        return f"all_ints({-int(value) if _kind(node) == 'truth' else int(value)})"
    if np.isnan(value):
        return "all(NAN)"
    text = float(value).hex()  # "inf" and "-inf" where it is infinite
    return f"all({text.replace('inf', 'INFINITY')})"
