"""A builder of LLVM assembly in which every value is a vector, one number for each lane.

With one lane the values are plain numbers: this is the form for a GPU, where a thread is a lane.

In `.ll` files `${name}` stands for a parameter, which is what differs between programs: a number, a
name, or lines that are generated. It is filled in by `string.Template`, which raises a KeyError if
one is missing. The generated modules are parsed and verified by LLVM in the tests.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from jaxmech.compiler.ir.loops import native_dtype


@cache
def template(name: str) -> Template:
    """The content of a file in this folder."""
    return Template((files(__package__) / name).read_text("utf-8"))


FFI_TYPES = template("ffi_types.ll").template
CAPTURABLE = 1  # trait: the call always starts the same work, which may be recorded and replayed


def answer_query(traits: int) -> str:
    """Write the first lines of a handler, which answer queries and define `%stage.is`."""
    return template("ffi_query.ll").substitute(traits=traits)


_FLOATS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}
_ALIGN = 64  # bytes, of scratch memory


class AssemblyBuilder:
    """The lines of one function, with its tables of constants and declarations.

    Args:
        lanes: number of lanes of a vector.
        on_gpu: whether the functions of the C library come from libdevice, and float32 is computed
            without double precision, which is slow on most GPUs.
        has_fma: whether the processor has fused multiply-adds.
    """

    def __init__(self, lanes: int, on_gpu: bool = False, has_fma: bool = True) -> None:
        self.lanes, self.on_gpu, self.has_fma = lanes, on_gpu, has_fma
        self.lines: list[str] = []
        self.tables: list[str] = []
        self.functions: list[str] = []
        self.declared: dict[str, str] = {}
        self.bytes = 0  # of scratch memory
        self.block = "entry"
        self._count = 0

    def function(self) -> "AssemblyBuilder":
        """Return a builder of another function of the same module."""
        other = AssemblyBuilder(self.lanes, self.on_gpu, self.has_fma)
        other.tables, other.declared = self.tables, self.declared
        return other

    def name(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"%x{self._count}"

    def line(self, operation: str) -> str:
        """Add an instruction and return the name of its value."""
        name = self.name()
        self.lines.append(f"{name} = {operation}")
        return name

    def label(self, block: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{block}:")
        self.block = block

    def call(self, kind: str, function: str, *args: tuple[str, str]) -> str:
        """Call a function; args are pairs of type and name."""
        self.declared[function] = f"declare {kind} @{function}({', '.join(k for k, _ in args)})"
        return self.line(f"call {kind} @{function}({', '.join(f'{k} {x}' for k, x in args)})")

    def table(self, values: np.ndarray) -> str:
        """Define an array of constants in memory, and return its name."""
        kind = _in_memory(values.dtype)
        items = ", ".join(f"{kind} {_literal(x, values.dtype)}" for x in values)
        content = f" = internal constant [{values.size} x {kind}] [{items}]"
        for table in self.tables:
            if table.endswith(content):
                return table.removesuffix(content)
        name = f"@table{len(self.tables)}"
        self.tables.append(name + content)
        return name

    def scratch(self, count: int, dtype: np.dtype) -> str:
        """Reserve scratch memory for `count` vectors."""
        return self.position(self.reserve(count, dtype))

    def position(self, start: int) -> str:
        """The address of a position in scratch memory."""
        return self.line(f"getelementptr inbounds i8, ptr %scratch, i64 {start}")

    def reserve(self, count: int, dtype: np.dtype) -> int:
        """Reserve scratch memory for `count` vectors, and return its position [bytes]."""
        start = self.bytes
        self.bytes += self.size(dtype, count)
        return start

    def size(self, dtype: np.dtype, count: int = 1) -> int:
        """The size of scratch memory for `count` vectors [bytes]."""
        size = count * self.lanes * max(dtype.itemsize, 1)
        align = _ALIGN if self.lanes > 1 else 8
        return -(-size // align) * align

    def address(self, base: str, dtype: np.dtype, offset: str | int) -> str:
        """Compute the address of the number at an offset."""
        if offset == 0:
            return base
        return self.line(f"getelementptr inbounds {_in_memory(dtype)}, ptr {base}, i64 {offset}")

    def load(self, address: str, dtype: np.dtype, lanes: int, align: int = 0) -> str:
        """Load a vector, or a single number into all lanes.

        On a GPU the alignment [bytes] is passed on if known: it may load several numbers at once.
        """
        kind, vector_type = _in_memory(dtype), self.lanes
        if lanes == 1:
            aligned = f", align {align}" if self.on_gpu and align else ""
            value = self.line(f"load {kind}, ptr {address}{aligned}")
            if dtype.kind == "b":
                value = self.line(f"trunc {kind} {value} to i1")
            return self._spread(value, type_of(dtype, 1))
        value = self.line(
            f"load <{vector_type} x {kind}>, ptr {address}, align {max(dtype.itemsize, 1)}"
        )
        if dtype.kind == "b":
            value = self.line(f"trunc <{vector_type} x {kind}> {value} to <{vector_type} x i1>")
        return value

    def store(self, value: str, address: str, dtype: np.dtype, align: int = 0) -> None:
        """Store a vector."""
        kind = vector(_in_memory(dtype), self.lanes)
        if dtype.kind == "b":
            value = self.line(f"zext {vector('i1', self.lanes)} {value} to {kind}")
        align = max(align if self.on_gpu else 0, dtype.itemsize, 1)
        self.lines.append(f"store {kind} {value}, ptr {address}, align {align}")

    def load_vector(self, address: str, dtype: np.dtype) -> str:
        """Load the vector of a slot of scratch memory."""
        return self.load(address, dtype, self.lanes)

    def gather(self, address: str, dtype: np.dtype, apart: int, align: int = 0) -> str:
        """Load a vector with a stride of `apart` numbers."""
        if self.lanes == 1:
            return self.load(address, dtype, 1, align)
        lanes = range(self.lanes)
        return self._loaded([self.address(address, dtype, k * apart) for k in lanes], dtype)

    def read(self, base: str, dtype: np.dtype, apart: int, position: str, kind: np.dtype) -> str:
        """Load the numbers at a vector of indices, with lanes `apart` numbers from each other."""
        if self.lanes == 1:
            start = f"getelementptr {_in_memory(dtype)}, ptr {base}"
            return self.load(self.line(f"{start}, {type_of(kind, 1)} {position}"), dtype, 1)
        vector_type, start = type_of(kind, self.lanes), f"getelementptr {_in_memory(dtype)}, ptr"
        addresses = []
        for lane in range(self.lanes):
            number = self.line(f"extractelement {vector_type} {position}, i64 {lane}")
            lane_base = self.address(base, dtype, lane * apart)
            addresses.append(self.line(f"{start} {lane_base}, {type_of(kind, 1)} {number}"))
        return self._loaded(addresses, dtype)

    def look_up(self, table: np.ndarray, position: str, index_dtype: np.dtype) -> str:
        """Load the constants at a vector of indices that lie within the table."""
        return self.read(self.table(table), table.dtype, 0, position, index_dtype)

    def _loaded(self, addresses: Sequence[str], dtype: np.dtype) -> str:
        kind, values = _in_memory(dtype), "poison"
        vector_type = f"<{self.lanes} x {kind}>"
        for lane, address in enumerate(addresses):
            value = self.line(f"load {kind}, ptr {address}")
            values = self.line(f"insertelement {vector_type} {values}, {kind} {value}, i64 {lane}")
        if dtype.kind == "b":
            values = self.line(f"trunc {vector_type} {values} to <{self.lanes} x i1>")
        return values

    def scatter(
        self, value: str, address: str, dtype: np.dtype, apart: int, align: int = 0
    ) -> None:
        """Store a vector with a stride of `apart` numbers."""
        if self.lanes == 1:
            self.store(value, address, dtype, align)
            return
        kind = _in_memory(dtype)
        vector_type = f"<{self.lanes} x {kind}>"
        if dtype.kind == "b":
            value = self.line(f"zext <{self.lanes} x i1> {value} to {vector_type}")
        for lane in range(self.lanes):
            number = self.line(f"extractelement {vector_type} {value}, i64 {lane}")
            position = self.address(address, dtype, lane * apart)
            self.lines.append(f"store {kind} {number}, ptr {position}")

    def write_row(
        self, values: Sequence[str], base: str, dtype: np.dtype, apart: int, position: str,
        kind: np.dtype, condition: str,
    ) -> None:  # fmt: skip
        """Store a row of numbers at the index of each lane for which `condition` holds."""
        kinds = type_of(kind, self.lanes), type_of(dtype, self.lanes)
        # The other lanes write to unused memory: a jump for each lane would take longer. A single
        # lane gets here only if `condition` holds.
        aside = self.scratch(len(values), dtype) if self.lanes > 1 else ""
        for lane in range(self.lanes):
            number = self._of_lane(position, kinds[0], lane)
            if kind.itemsize < 8:
                how = "zext" if kind.kind == "u" else "sext"
                number = self.line(f"{how} {type_of(kind, 1)} {number} to i64")
            offset = self.line(f"mul i64 {number}, {len(values)}")
            address = self.address(self.address(base, dtype, offset), dtype, lane * apart)
            if self.lanes > 1:
                holds = self._of_lane(condition, f"<{self.lanes} x i1>", lane)
                address = self.line(f"select i1 {holds}, ptr {address}, ptr {aside}")
            for k, value in enumerate(values):
                number_of_lane = self._of_lane(value, kinds[1], lane)
                if dtype.kind == "b":
                    number_of_lane = self.line(f"zext i1 {number_of_lane} to i8")
                target = self.address(address, dtype, k)
                aligned = max(dtype.itemsize, 1)
                self.lines.append(
                    f"store {_in_memory(dtype)} {number_of_lane}, ptr {target}, align {aligned}"
                )

    def _of_lane(self, value: str, kind: str, lane: int) -> str:
        return value if self.lanes == 1 else self.line(f"extractelement {kind} {value}, i64 {lane}")

    def _spread(self, value: str, kind: str) -> str:
        if self.lanes == 1:
            return value
        vector_type = f"<{self.lanes} x {kind}>"
        first = self.line(f"insertelement {vector_type} poison, {kind} {value}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.line(f"shufflevector {vector_type} {first}, {vector_type} poison, {zeros}")

    @contextmanager
    def loop(
        self, length: int | None, carry: Sequence[tuple[str, str]], condition: str | None = None
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Write a loop of `length` >= 1 iterations, with types and initial values of its carry.

        Without a length it runs until the first number of its carry is false in every lane. It is
        skipped if `condition` is false in every lane. Yields its counter, the names of the carry,
        and a list for the names of the next carry, which holds those of the last one afterwards.
        """
        self._count += 1
        label, turn, following = f"loop{self._count}", self.name(), self.name()
        names, ends = [self.name() for _ in carry], list[str]()
        entry = f"br label %{label}"
        if condition is not None:
            entry = f"br i1 {self.any_lane(condition)}, label %{label}, label %{label}.end"
        entry_block, head = self.block, len(self.lines) + 2
        self.lines.append(entry)
        self.label(label)
        yield turn, names, ends
        # They stand at the head of the loop, but refer to names defined in its body: so they are
        # written last.
        phis = [f"{turn} = phi i64 [ 0, %{entry_block} ], [ {following}, %{self.block} ]"]
        for name, (kind, start), end in zip(names, carry, ends, strict=True):
            phis.append(
                f"{name} = phi {kind} [ {start}, %{entry_block} ], [ {end}, %{self.block} ]"
            )
        self.lines[head:head] = phis
        self.lines.append(f"{following} = add i64 {turn}, 1")
        if length is None:
            goes_on = self.any_lane(ends[0])
        else:
            goes_on = self.line(f"icmp ult i64 {following}, {length}")
        last = self.block
        self.lines.append(f"br i1 {goes_on}, label %{label}, label %{label}.end")
        self.label(f"{label}.end")
        if condition is not None:
            ends[:] = [
                self.line(f"phi {kind} [ {start}, %{entry_block} ], [ {end}, %{last} ]")
                for (kind, start), end in zip(carry, ends, strict=True)
            ]

    @contextmanager
    def once(
        self, condition: str, carry: Sequence[tuple[str, str]], is_usual: bool
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """A `loop` of at most one iteration, skipped if `condition` is false in every lane."""
        # A jump that is rarely taken, not a loop, by which LLVM would think it the busiest part.
        ends = list[str]()
        with self.branch(condition, carry, is_usual) as (names, rare):
            yield "0", [start for _, start in carry], ends
            rare += ends
        ends[:] = names

    @contextmanager
    def branch(
        self, condition: str, carry: Sequence[tuple[str, str]], is_usual: bool = False
    ) -> Iterator[tuple[list[str], list[str]]]:
        """A branch, rarely taken unless `is_usual`, skipped if `condition` is false in every lane.

        `carry` has the types, and the values if it is skipped; yields the names after it, and a
        list for the values computed in it.
        """
        self._count += 1
        label, names, ends = f"case{self._count}", [self.name() for _ in carry], list[str]()
        # A jump for all lanes at once: if some need the branch, all compute it, and each selects.
        any_lane = self.any_lane(condition)
        entry_block = self.block
        weights = "" if is_usual else ", !prof !0"
        self.lines.append(f"br i1 {any_lane}, label %{label}, label %{label}.end{weights}")
        self.label(label)
        yield names, ends
        last = self.block
        self.lines.append(f"br label %{label}.end")
        self.label(f"{label}.end")
        for name, (type_, start), end in zip(names, carry, ends, strict=True):
            self.lines.append(
                f"{name} = phi {type_} [ {start}, %{entry_block} ], [ {end}, %{last} ]"
            )

    def any_lane(self, condition: str) -> str:
        """Write a test whether a boolean holds in any lane."""
        if self.lanes == 1:
            return condition
        kind = f"<{self.lanes} x i1>"
        return self.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (kind, condition))

    def call_by_lane(self, function: str, dtype: np.dtype, *inputs: str) -> str:
        """Call a function of the C library, lane by lane; on a GPU that of libdevice."""
        kind, vector_type = type_of(dtype, 1), type_of(dtype, self.lanes)
        function = function if kind == "double" else f"{function}f"
        function = f"__nv_{function}" if self.on_gpu else function
        if self.lanes == 1:
            return self.call(kind, function, *((kind, x) for x in inputs))
        result = "poison"
        for lane in range(self.lanes):
            args = [
                (kind, self.line(f"extractelement {vector_type} {x}, i64 {lane}")) for x in inputs
            ]
            value = self.call(kind, function, *args)
            result = self.line(f"insertelement {vector_type} {result}, {kind} {value}, i64 {lane}")
        return result

    def intrinsic(self, name: str, dtype: np.dtype, *inputs: str) -> str:
        """Call an LLVM intrinsic on vectors."""
        kind = type_of(dtype, self.lanes)
        return self.call(kind, f"llvm.{name}.{self.suffix(dtype)}", *((kind, x) for x in inputs))

    def suffix(self, dtype: np.dtype) -> str:
        """The type of a vector in the name of an intrinsic."""
        prefix = "" if self.lanes == 1 else f"v{self.lanes}"
        return f"{prefix}{dtype.kind.replace('u', 'i')}{8 * dtype.itemsize}"

    def select(self, condition: str, yes: str, no: str, dtype: np.dtype) -> str:
        """Select lane by lane."""
        kind = type_of(dtype, self.lanes)
        condition = f"{vector('i1', self.lanes)} {condition}"
        return self.line(f"select {condition}, {kind} {yes}, {kind} {no}")


def type_of(dtype: np.dtype, lanes: int) -> str:
    """The LLVM type of a vector, or of a number if lanes is 1, or an `UnsupportedError`."""
    kind = _FLOATS.get(native_dtype(dtype))
    if kind is None:
        kind = "i1" if dtype.kind == "b" else f"i{8 * dtype.itemsize}"
    return vector(kind, lanes)


def vector(kind: str, lanes: int) -> str:
    """The LLVM type of a vector of numbers of a type; with one lane, that type itself."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def splat(builder: AssemblyBuilder, value: Any, dtype: np.dtype) -> str:
    """A constant in all lanes."""
    number = _literal(value, dtype)
    return number if builder.lanes == 1 else f"splat ({type_of(dtype, 1)} {number})"


def _in_memory(dtype: np.dtype) -> str:
    return "i8" if dtype == np.bool_ else type_of(dtype, 1)


def _literal(value: Any, dtype: np.dtype) -> str:
    """A constant; floating-point ones by the bits of a double, also for float32, as in LLVM."""
    if dtype.kind == "f":
        return f"0x{np.float64(dtype.type(value)).view(np.uint64):016X}"
    return str(int(value))
