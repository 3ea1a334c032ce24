"""Row reductions across blocks of threads: each slice sends what it has of a row, and all add up the same numbers.

A sum and a sum of squares about the mean travel together: slices send their own Σx and Σ(x − x̄ₛ)², and these merge
exactly, Σ(x − x̄)² = Σₛ [Σ(x − x̄ₛ)² + nₛ (x̄ₛ − x̄)²] (Chan et al. 1979), without waiting for the mean.
"""

from __future__ import annotations

from anaphora.kernels.recurrence.persistent.body import Body
from anaphora.kernels.recurrence.persistent.clusters import Near, reduction_width
from anaphora.kernels.recurrence.persistent.columns import Exchange, Program


class Reductions:
    """The statements that send and receive the reductions of each stage."""

    def __init__(self, program: Program, body: Body, near: Near):
        self.program, self.body, self.near = program, body, near
        self.levels: dict[int, list[Exchange]] = {}
        for e in program.exchanges:
            if not e.is_product:
                self.levels.setdefault(e.level, []).append(e)
        self.offsets: dict[int, int] = {}
        self.width = 0  # numbers of a slice of a row that leave a cluster, all stages together
        for level, found in sorted(self.levels.items()):
            self.offsets[level] = self.width
            self.width += 0 if level in near.reductions else reduction_width(len(found))

    def sent(self, level: int) -> int:
        """Numbers a slice of a row sends for a stage."""
        return reduction_width(len(self.levels[level]))

    def _moment(self, e: Exchange) -> Exchange | None:
        """The plain sum that goes with a sum of squares about the mean."""
        total = self.program.columns.centred(e.node)
        if total is None:
            return None
        return next((f for f in self.levels[e.level] if f.node is total), None)

    def send(self, level: int, at: str, beat: str) -> list[str]:
        """After stage ``level``: this slice's part of every reduction of the next one; ``at``, ``beat``: of which step."""
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
                # About the row's first number in this slice: near the mean, and there without a sum.
                total = f"z{found.index(self._moment(e))}"  # type: ignore[arg-type]
                near = "+".join(f"({v}-near{q})*({v}-near{q})" for v in values)
                lines.append(
                    f"const float near{q}=first_of_row({values[0]}),square{q}=row_sum(col?{near}:0.f);"
                )
                share, count = (
                    f"column_share(slice)*K({1 / len(values)!r})",
                    f"{len(values)}*real_columns(slice)",
                )
                lines.append(f"const float away{q}={total}*({share})-near{q};")
                lines.append(f"const float z{q}=r_max(square{q}-{count}*away{q}*away{q},0.f);")
            else:
                lines.append(f"const float z{q}=row_sum(col?{'+'.join(values)}:0.f);")
        width = reduction_width(len(found))
        sent = [f"z{q}" if q < len(found) else "0.f" for q in range(width)]
        fours = [(q, sent[q : q + 4]) for q in range(0, width, 4)]
        if level + 1 in self.near.reductions:
            words = "".join(
                f"hand4(to+{q},bar,s,make_uint4({','.join(f'word({v})' for v in four)}));"
                for q, four in fours
            )
            place = f"{self._near(level + 1, beat)}+slice*{width}"
            each = f"UNROLL for(int u=0;u<NSL;u+=HS){{const int s=u+j;if(s<NSL){{{words}}}}}"
            return [*lines, f"{{float*to={place};char*bar={self._barrier(level + 1, beat)};{each}}}"]
        stores = "".join(f"store4(to+{q},{','.join(four)});" for q, four in fours)
        place = f"ROWS+((L){at}*NSL)*NV+{self.offsets[level + 1]}*NSL+slice*{width}"
        return [*lines, f"if(on[i]&&j==0){{float*to={place};{stores}}}"]

    def _near(self, level: int, beat: str) -> str:
        """Where all slices of this row send to in a cluster."""
        width = reduction_width(len(self.levels[level]))
        row = f"(({beat}&1)*BM+(tid+i*NTH)/HS)*NSL*{width}"
        return f"(float*)(near+{self.near.reductions[level].offset})+{row}"

    def _barrier(self, level: int, beat: str) -> str:
        """That of this row."""
        return f"near+{self.near.reductions[level].barriers}+(({beat}&1)*BM+(tid+i*NTH)/HS)*8"

    def touch(self, at: str) -> list[str]:
        """Fetch what this slice will write at a step ahead of it: memory fills what is not there word by word."""
        places = [
            f"touch(ROWS+((L){at}*NSL)*NV+{self.offsets[level]}*NSL+slice*{reduction_width(len(found))});"
            for level, found in self.levels.items()
            if level not in self.near.reductions
        ]
        return [f"if(on[i]&&j==0){{{''.join(places)}}}"] if places else []

    def receive(self, level: int) -> str:
        """At the beginning of stage ``level``: the reductions over the whole row."""
        found = self.levels.get(level, [])
        if not found:
            return ""
        width = reduction_width(len(found))
        each = "UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NSL)"
        if level in self.near.reductions:
            read = "".join(f"got[u][{q}]=all[s*{width}+{q}];" for q in range(len(found)))
            lines = [
                f"const float*all={self._near(level, 'beat')};float got[TURNS][{width}];",
                f"receive({self._barrier(level, 'beat')},beat,NSL*{width * 4},j==0,dead);",
                f"{each}{{{read}}}}}",
            ]
        else:
            lines = [
                f"const float*all=ROWS+((L)at[i]*NSL)*NV+{self.offsets[level]}*NSL;float got[TURNS][{width}];",
                f"{each}take<{width}>(all+s*{width},got[u],dead);}}",
            ]
        lines.append("__syncwarp();")
        known: set[int] = set()
        for q, e in enumerate(found):
            moment = self._moment(e)
            if moment is not None:
                total = found.index(moment)
                lines += self._merged(q, total, len(e.operands), total not in known)
                known |= {q, total}
        for q, e in enumerate(found):
            if q not in known:
                most = e.node.op == "maximum"
                add = f"z{q}=r_max(z{q},got[u][{q}]);" if most else f"z{q}+=got[u][{q}];"
                lines.append(f"float z{q}={'-INFINITY' if most else '0.f'};")
                lines.append(f"UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NSL){{{add}}}")
                lines.append(f"z{q}={'slices_max' if most else 'slices_sum'}(z{q});")
        for q, e in enumerate(found):
            key = (e.node.number, 0)
            self.body.known(key)
            lines.append(f"{self.body.name(key)}=z{q};")
        return "EACH{" + "\n".join(lines) + "}\n"

    @staticmethod
    def _merged(q: int, total: int, blocks: int, first: bool) -> list[str]:
        """Σ and squares about the mean of all slices, from those about each slice's own: all about the first slice's."""
        share, count = f"column_share(s)*K({1 / blocks!r})", f"{blocks}*real_columns(s)"
        return [
            f"const float near{q}=first_of_row(got[0][{total}]*(column_share(0)*K({1 / blocks!r})));float apart{q}=0.f,both{q}=0.f;",
            f"UNROLL for(int u=0;u<TURNS;u++){{const int s=j%SPAN+u*SPAN;if(s<NSL){{const float n={count},d=got[u][{total}]*({share})-near{q};"
            f"apart{q}+=n*d;both{q}+=got[u][{q}]+n*d*d;}}}}",
            f"apart{q}=slices_sum(apart{q});both{q}=slices_sum(both{q});",
            f"const float z{total}=near{q}*({blocks}.f*H_)+apart{q};" if first else "",
            f"const float z{q}=r_max(both{q}-apart{q}*apart{q}*(1.f/({blocks}*H_)),0.f);",
        ]
