"""What the generated functions have in common: arguments, scratch memory, row pointers, and how they open."""

from __future__ import annotations

from dataclasses import dataclass, field

from anaphora.kernels.recurrence.backends.c.tables import Tables
from anaphora.kernels.recurrence.front.graph import Node


@dataclass
class Function:
    """One function being written: its arrays in order, its scratch memory, and its row pointers."""

    name: str
    arrays: list[str] = field(default_factory=list)
    scratch: list[tuple[str, str]] = field(default_factory=list)  # (name, width)
    pointers: dict[str, str] = field(default_factory=dict)

    def array(self, name: str) -> None:
        if name not in self.arrays:
            self.arrays.append(name)

    def everywhere(self, pointer: str, name: str, width: str) -> None:
        """An array with a row for every step of every sequence."""
        self.array(name)
        self.pointers[pointer] = f"{name}+at*{width}"

    def buffer(self, pointer: str, name: str, width: str) -> None:
        """Scratch memory with a row for every sequence at work."""
        self.scratch.append((name, width))
        self.pointers[pointer] = f"{name}+i*{width}"


def leaf_pointers(tables: Tables, f: Function, given: dict[int, str], nodes: list[Node]) -> None:
    for node in nodes:
        if node.op == "step":
            f.everywhere(
                f"STEP{node.index}", f"step{node.index}", tables.size(("step", node.index), node.width)
            )
            given[node.number] = f"STEP{node.index}"
        elif node.op == "row":
            width = tables.size(("row", node.index), node.width)
            f.array(f"row{node.index}")
            f.pointers[f"ROW{node.index}"] = f"row{node.index}+ROW[i]*{width}"
            given[node.number] = f"ROW{node.index}"
        elif node.op == "vector":
            f.array(f"vector{node.index}")
            f.pointers[f"VEC{node.index}"] = f"vector{node.index}"
            given[node.number] = f"VEC{node.index}"


def opening(tables: Tables, f: Function) -> str:
    """The start of a function that works on one part of the rows, longest first."""
    declared = "\n".join(f"R*const {name}=p[{3 + i}];(void){name};" for i, name in enumerate(f.arrays))
    return f"""
static int {f.name}_part(const L*n,void*const*p,L part){{
const L T=n[0],B=n[1],reverse=n[2],threads=n[3];
{_tables_text(tables)}
const L*const order=p[0];const L*const length=p[1];const R*const constants=p[2];(void)constants;
{declared}
L C=0;for(L g=part;g*GROUP<B;g+=threads)C+=B-g*GROUP<GROUP?B-g*GROUP:GROUP;
if(!C)return 0;
L ROW[C],LEN[C],GRP[C];C=0;
for(L g=part;g*GROUP<B;g+=threads)for(L r=g*GROUP;r<B&&r<(g+1)*GROUP;r++){{ROW[C]=order[r];LEN[C]=length[r];GRP[C]=g;C++;}}
(void)GRP;const L last_step=LEN[0];
#define AT(i) (ROW[i]*T+(reverse?LEN[i]-1-t:t))
"""


def _tables_text(tables: Tables) -> str:
    # Functions are written one after another while the tables grow, so each declares what exists by then.
    sizes = "".join(f"const L d{i}=n[{4 + i}];(void)d{i};" for i in range(len(tables.sizes)))
    used = len(tables.constants)
    constants = "".join(f"const R k{i}=((const R*)p[2])[{i}];(void)k{i};" for i in range(used))
    return sizes + "\n" + constants
