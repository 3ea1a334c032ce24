"""Row reductions across blocks of threads: each slice sends what it has of a row, and all add up the same numbers.

A sum and a sum of squares about the mean travel together: slices send their own Σx and Σ(x − x̄ₛ)², and these merge
exactly, Σ(x − x̄)² = Σₛ [Σ(x − x̄ₛ)² + nₛ (x̄ₛ − x̄)²] (Chan et al. 1979), without waiting for the mean.
"""

from __future__ import annotations

from anaphora.kernels.recurrence.persistent.body import Body
from anaphora.kernels.recurrence.persistent.columns import Exchange, Program


class Reductions:
    """The statements that send and receive the reductions of each stage."""

    def __init__(self, program: Program, body: Body):
        self.program, self.body = program, body
        self.levels: dict[int, list[Exchange]] = {}
        for e in program.exchanges:
            if not e.is_product:
                self.levels.setdefault(e.level, []).append(e)
        self.offsets: dict[int, int] = {}
        self.width = 0  # numbers of a slice of a row, all stages together
        for level, found in sorted(self.levels.items()):
            self.offsets[level] = self.width
            self.width += _padded(len(found))

    def _moment(self, e: Exchange) -> Exchange | None:
        """The plain sum that goes with a sum of squares about the mean."""
        total = self.program.columns.centred(e.node)
        if total is None:
            return None
        return next((f for f in self.levels[e.level] if f.node is total), None)

    def send(self, level: int, live: str, at: str) -> list[str]:
        """After stage ``level``: this slice's part of every reduction of the next one."""
        found = self.levels.get(level + 1, [])
        if not found:
            return []
        lines = []
        for q, e in enumerate(found):
            values = [self.body.name(k) for k in e.operands]
            if e.node.op == "maximum":
                top = values[0]
                for value in values[1:]:
                    top = f"r_max({top},{value})"
                lines.append(f"const float z{q}=row_max(col?{top}:-INFINITY);")
            elif self._moment(e) is not None:
                mean = f"z{found.index(self._moment(e))}/ns{q}"  # type: ignore[arg-type]
                squares = "+".join(f"({v}-mid{q})*({v}-mid{q})" for v in values)
                lines.append(f"const float ns{q}={len(values)}*real_columns(slice),mid{q}={mean};")
                lines.append(f"const float z{q}=row_sum(col?{squares}:0.f);")
            else:
                lines.append(f"const float z{q}=row_sum(col?{'+'.join(values)}:0.f);")
        width = _padded(len(found))
        stores = "".join(f"store(to+{q},word({f'z{q}' if q < len(found) else '0.f'}));" for q in range(width))
        lines.append(
            f"if(on[i]&&j==0){{float*to=ROWS+({at}*NSL)*NV+{self.offsets[level + 1]}*NSL+slice*{width};{stores}}}"
        )
        return lines

    def receive(self, level: int) -> str:
        """At the beginning of stage ``level``: the reductions over the whole row."""
        found = self.levels.get(level, [])
        if not found:
            return ""
        width = _padded(len(found))
        lines = [f"const float*all=ROWS+(at[i]*NSL)*NV+{self.offsets[level]}*NSL;"]
        starts = ["-INFINITY" if e.node.op == "maximum" else "0.f" for e in found]
        lines.append("".join(f"float z{q}={s};" for q, s in enumerate(starts)))
        moments = [(q, e, self._moment(e)) for q, e in enumerate(found)]
        pairs = [(q, found.index(f), e) for q, e, f in moments if f is not None]
        keep = f"constexpr int TURNS=(NSL+HS-1)/HS;float got[TURNS][{width}];"
        lines.append(keep)
        gather = "".join(
            f"z{q}=r_max(z{q},got[u][{q}]);" if e.node.op == "maximum" else f"z{q}+=got[u][{q}];"
            for q, e in enumerate(found)
        )
        lines.append(
            f"UNROLL for(int u=0;u<TURNS;u++){{const int s=j+u*HS;if(s<NSL){{take<{width}>(all+s*{width},got[u],dead);{gather}}}}}"
        )
        lines.append("__syncwarp();")
        lines += [
            f"z{q}={'row_max' if e.node.op == 'maximum' else 'row_sum'}(z{q});" for q, e in enumerate(found)
        ]
        for q, p, e in pairs:
            blocks = len(e.operands)
            lines.append(
                f"{{const float mean=z{p}/({blocks}*H_);float apart=0.f;UNROLL for(int u=0;u<TURNS;u++){{const int s=j+u*HS;"
                f"if(s<NSL){{const float n={blocks}*real_columns(s),d=got[u][{p}]/n-mean;apart+=n*d*d;}}}}z{q}+=row_sum(apart);}}"
            )
        for q, e in enumerate(found):
            key = (e.node.number, 0)
            self.body.known(key)
            lines.append(f"{self.body.name(key)}=z{q};")
        return "EACH{" + "\n".join(lines) + "}\n"


def _padded(count: int) -> int:
    """Numbers sent together, filled up to whole loads of four."""
    return -(-count // 4) * 4
