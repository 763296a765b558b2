"""C from the scalar graph of the lanes, with a vector of trajectories for each scalar.

Every operation is a line, every loop of the graph a loop in C. Several vectors of trajectories may
go through the same lines interleaved: then the processor has other work during a long division.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.speed.routes import Unavailable
from jaxmech.compiler.backends.llvm.trigonometry import COSINE, LARGE, PARTS, SINE
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Graph, Node
from jaxmech.compiler.ir.liveness import Live, LiveLoop, branch_outputs
from jaxmech.compiler.ir.loops import Loop

# The operations of mechanisms, by the kind of the first operand; others are not supported.
_OPERATORS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}",
    "ge": "{} >= {}", "convert_element_type to truth": "{} != 0",
}  # fmt: skip
_EXPRESSIONS: Mapping[str, Mapping[str, str]] = {
    "vec": {
        **_OPERATORS,
        "sqrt": "root({})",
        "abs": "absolute({})",
        "max": "larger({}, {})",
        "min": "smaller({}, {})",
        "is_finite": "{0} - {0} == 0",
    },
    "ints": {
        **_OPERATORS,
        "convert_element_type to vec": "number({})",
        "convert_element_type to ints": "{}",
    },
    "truth": {
        "and": "{} & {}",
        "or": "{} | {}",
        "not": "~{}",
        "convert_element_type to vec": "number(-{})",
        "convert_element_type to ints": "-{}",
    },
}


def source(kernel: Kernel, copies: int = 1) -> str:
    """A C program with one function, `run(size, threads, arguments ..., results ...)`.

    Arguments and results are float64 arrays of shape (size, numbers); `copies` is the number of
    interleaved vectors.
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
    parameters = ", ".join(f"{'const ' * name.startswith('in')}double *{name}" for name in names)
    # A line with an @ is written once for each copy, with its number in that place.
    body = [x.replace("@", str(k)) for x in lines for k in range(copies if "@" in x else 1)]
    return f"""{_prelude()}
static void group(long first, long size, {parameters})
{{
{chr(10).join(body)}
}}

void run(long size, int threads, {parameters})
{{
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (long first = 0; first < size; first += {copies} * WIDTH)
    group(first, size, {", ".join(names)});
}}
"""


def _prelude() -> str:
    """The vectors of `vectors.h`, with the constants of sine and cosine."""
    constants = {"LARGE": LARGE.hex(), **{f"PART{k}": x.hex() for k, x in enumerate(PARTS)}}
    for name, (first, *rest) in (("SINE", SINE), ("COSINE", COSINE)):
        constants[name] = first.hex()
        for coefficient in rest:
            constants[name] = f"({constants[name]} * z + {coefficient.hex()})"
    text = Path(__file__).with_name("vectors.h").read_text(encoding="utf-8")
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + text


class _Writer:
    """Writes one graph; the body of a loop gets a writer of its own, with the one `around` it.

    `leaves` is the C of each `input`, or in a body of each `carry`.
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
        """Write every live node, in the order of creation."""
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

    def name(self, number: int) -> str:
        """The C name of a node that has been written."""
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

    def _node(self, number: int) -> None:
        node = self.graph.nodes[number]
        if node.op not in ("const", "capture", "carry"):
            text = self._expression(node)
            self.lines.append(f"const {_type(node)} {self.name(number)} = {text};")

    def _expression(self, node: Node) -> str:
        names, params = [self.name(i) for i in node.inputs], node.params
        match node.op:
            case "input":
                return self.leaves[params]
            case "sin" | "cos":
                pair = f"p{self.depth}_{node.inputs[0]}_@"
                if self._is_new(pair):
                    self.lines.append(f"const pair {pair} = sine_and_cosine({names[0]});")
                return f"{pair}.{node.op}"
            case "select_n" | "branch":
                return self._choice(node)
            case "element":
                raise Unavailable("a loop over a sequence")
        first = self.graph.nodes[node.inputs[0]]
        op = f"{node.op} to {_kind(node)}" if node.op == "convert_element_type" else node.op
        if op not in _EXPRESSIONS[_kind(first)]:
            raise Unavailable(f"the operation `{node.op}` of {first.dtype}")
        return _EXPRESSIONS[_kind(first)][op].format(*names)

    def _choice(self, node: Node) -> str:
        if _kind(self.graph.nodes[node.inputs[0]]) != "truth":
            raise Unavailable("a choice among more than two")
        which, no, yes = (self.name(i) for i in node.inputs)
        return f"{'choose' if _kind(node) == 'vec' else 'choose_ints'}({which}, {yes}, {no})"

    def _branch(self, branch: int) -> None:
        """Write a rare case, computed only if a trajectory of the vector meets it."""
        nodes = self.graph.nodes
        gives = branch_outputs(self.graph, self.live, branch)
        for i in gives:
            usual = self.name(nodes[i].inputs[1])
            self.lines.append(f"{_type(nodes[i])} {self.name(i)} = {usual};")
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

    def _loop(self, number: int, loop: Loop, part: LiveLoop) -> None:
        if part.stacked or part.body is None or loop.length is None:
            raise Unavailable("a loop that saves a sequence, or one that ends by a condition")
        carry = {k: self._result(number, k) for k in sorted(part.carry)}
        for k, name in carry.items():
            start = loop.init[k]
            self.lines.append(f"{_type(self.graph.nodes[start])} {name} = {self.name(start)};")
        body = _Writer(loop.body, loop.inner, part.body, carry, self)
        body.write()
        self.lines.append(f"for (long i = 0; i < {loop.length}; i++) {{")
        self.lines += body.lines
        # All ends before the first is assigned: a carry can become another carry.
        for k, name in carry.items():
            end = loop.carry[k]
            self.lines.append(f"const {_type(loop.body.nodes[end])} {name}end = {body.name(end)};")
        self.lines += [f"{name} = {name}end;" for name in carry.values()]
        self.lines.append("}")


def _kind(typed: Node) -> str:
    if typed.dtype == np.float64:
        return "vec"
    if typed.dtype.kind not in "bi":
        raise Unavailable(f"numbers of type {typed.dtype}")
    return "truth" if typed.dtype.kind == "b" else "ints"


def _type(typed: Node) -> str:
    return "vec" if _kind(typed) == "vec" else "ints"


def _literal(node: Node, value: Any) -> str:
    if _kind(node) != "vec":
        return f"all_ints({-int(value) if _kind(node) == 'truth' else int(value)})"
    if np.isnan(value):
        return "all(NAN)"
    text = float(value).hex()  # "inf" and "-inf" if it is infinite
    return f"all({text.replace('inf', 'INFINITY')})"
