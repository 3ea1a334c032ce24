"""Time-synchronous search for words: a beam over prefixes that stay on the prefix tree of a lexicon.

A prefix is a sequence of words and a node of the tree, the beginning of the next word; that fixes its labels. As in
`ctc_beam` it has the mass of its paths that end in a blank and of those that end in its last label, so that all paths
of a prefix are added up. Its rank is

    log mass + weight · log p(words) + bonuses + credit(node)

where the credit, an estimate of what the word begun will bring, is given back when a word ends. A word ends on the arc
that enters its last node: there the prefix divides, into one that goes on inside the tree and one per word, at the root.
Prefixes at the same node (at the root: with the same last label) whose words leave the language model in the same state
have the same future, and only the `per_node` best of them stay.
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit
from anaphora.ops.prune import choose
from anaphora.search.ctc._frames import _log_add
from anaphora.search.lexicon._words import known, read_word

_INF = np.inf


@njit(cache=True, nogil=True)
def _stay(q, blank, credit, symbols, hots, beam, next_):  # type: ignore[no-untyped-def]
    """The masses of the kept prefixes one frame later, as the first candidates; the least and the greatest rank."""
    # Arrays are taken out of the tuples once: each time counts a reference, which costs more than an addition.
    prefixes, now, masses = beam.prefixes, beam.now, beam.masses
    stayed, kid, score, states = next_.stayed, next_.kid, next_.score, next_.state
    size, nodes, positions = beam.counts[0], len(credit), len(credit) + symbols
    least, best = _INF, -_INF
    for j in range(size):
        kid[0, j] = -1
    for j in range(size):
        at = prefixes[now[j]]
        on_blank = masses[2, j] + q[blank]
        on_label = -_INF
        if at.label >= 0:
            on_label = masses[1, j] + q[at.label]
            before = prefixes[at.parent]
            up = before.place
            if up >= 0:
                kid[1, j] = kid[0, up]
                kid[0, up] = j
                shorter = masses[0, up] if before.label == at.label else masses[2, up]
                on_label = _log_add(on_label, shorter + q[at.label])
        total = _log_add(on_blank, on_label)
        stayed[0, j], stayed[1, j], stayed[2, j] = on_blank, on_label, total
        inside = at.entry < 0
        score[j] = total + at.extra + (credit[at.arc] if inside else 0.0)
        least, best = min(least, score[j]), max(best, score[j])
        states[j] = (at.state * hots + at.hot) * positions + (at.arc if inside else nodes + at.label)
    return least, best


@njit(cache=True, nogil=True)
def _held(prefixes, now, kid, source, arc, entry):  # type: ignore[no-untyped-def]
    """Whether an extension is in the beam already; its mass came to it there."""
    j = kid[0, source]
    while j >= 0 and not (prefixes[now[j]].arc == arc and prefixes[now[j]].entry == entry):
        j = kid[1, j]
    return j >= 0


@njit(cache=True, nogil=True)
def _extend(q, floor, rules, tree, lm, hot, hots, beam, next_):  # type: ignore[no-untyped-def]
    """Add every extension whose rank may reach `floor` to the candidates; their count."""
    prefixes, now, masses = beam.prefixes, beam.now, beam.masses
    first, symbols, credit, word_first, words = (
        tree.first,
        tree.symbol,
        tree.credit,
        tree.word_first,
        tree.word,
    )
    kid, score, states, extension = next_.kid, next_.score, next_.state, next_.extension
    nodes, positions = len(symbols), len(symbols) + len(q)
    with_models = lm.scale != 0.0 or hot.scale != 0.0
    loudest = -_INF
    for k in range(len(q)):
        if k != rules.blank:
            loudest = max(loudest, q[k])
    size = count = beam.counts[0]
    for i in range(size):
        at = prefixes[now[i]]
        blank, either, extra = masses[0, i], masses[2, i], at.extra
        if either + extra + loudest + rules.most < floor:
            continue
        label, state, warm, some = at.label, at.state, np.int64(at.hot), kid[0, i] >= 0
        node = at.arc if at.entry < 0 else 0
        for c in range(first[node], first[node + 1]):
            symbol = symbols[c]
            mass = q[symbol] + (blank if symbol == label else either)
            rank = mass + extra
            if not rank > -_INF or rank + rules.most < floor:
                continue
            if (
                first[c + 1] > first[c]
                and rank + credit[c] >= floor
                and not (some and _held(prefixes, now, kid, i, c, -1))
            ):
                score[count], states[count] = rank + credit[c], (state * hots + warm) * positions + c
                made = extension[count]
                made.source, made.arc, made.entry, made.mass = i, c, -1, mass
                count += 1
            for entry in range(word_first[c], word_first[c + 1]):
                if some and _held(prefixes, now, kid, i, c, entry):
                    continue
                gain, after, warmer = 0.0, state, warm
                if words[entry] >= 0:
                    gain = rules.word_bonus
                    if with_models:
                        added, after, warmer = _read(words[entry], lm, hot, state, warm)
                        gain += added
                if rank + gain >= floor:
                    score[count] = rank + gain
                    states[count] = (after * hots + warmer) * positions + nodes + symbol
                    made = extension[count]
                    made.source, made.arc, made.entry, made.mass = i, c, entry, mass
                    made.state, made.hot, made.gain = after, warmer, gain
                    count += 1
    return count


@njit(cache=True, nogil=True)
def _read(word, lm, hot, state, warm):  # type: ignore[no-untyped-def]
    """What the models add at the end of a word, and their states after it."""
    gain = 0.0
    if lm.scale != 0.0:
        value, state = read_word(lm, state, word)
        gain += lm.scale * value
    if hot.scale != 0.0:
        value, warm = read_word(hot, warm, word)
        gain += value
    return gain, state, warm


@njit(cache=True, nogil=True)
def _keep(symbols, beam, next_, kept):  # type: ignore[no-untyped-def]
    """Make the chosen candidates the beam; prefixes that were never kept before are added to the tree of prefixes."""
    prefixes, now, masses = beam.prefixes, beam.now, beam.masses
    made, chosen, stayed, extension = next_.made, next_.chosen, next_.stayed, next_.extension
    size, count = beam.counts[0], beam.counts[1]
    for j in range(kept):
        name = chosen[j]
        if name < size:
            made[j] = now[name]
            continue
        new = extension[name]
        source = prefixes[now[new.source]]
        found = source.child
        while found >= 0 and not (prefixes[found].arc == new.arc and prefixes[found].entry == new.entry):
            found = prefixes[found].sibling
        if found < 0:
            found = count
            count += 1
            at = prefixes[found]
            at.parent, at.label, at.arc, at.entry = now[new.source], symbols[new.arc], new.arc, new.entry
            at.child, at.sibling, source.child = -1, source.child, found
            if new.entry >= 0:
                at.state, at.hot, at.extra = new.state, new.hot, source.extra + new.gain
            else:
                at.state, at.hot, at.extra = source.state, source.hot, source.extra
        made[j] = found
    for j in range(size):
        prefixes[now[j]].place = -1
    for j in range(kept):
        name = chosen[j]
        now[j] = made[j]
        prefixes[made[j]].place = j
        if name < size:
            masses[0, j], masses[1, j], masses[2, j] = stayed[0, name], stayed[1, name], stayed[2, name]
        else:
            masses[0, j] = -_INF
            masses[1, j] = masses[2, j] = extension[name].mass
    beam.counts[0], beam.counts[1] = kept, count


@njit(cache=True, nogil=True)
def frame(q, rules, tree, lm, hot, beam, next_):  # type: ignore[no-untyped-def]
    """One frame with log-probabilities q (V,): the beam after it, in place."""
    hots = max(hot.exits.shape[0], 1)
    least, best = _stay(q, rules.blank, tree.credit, len(q), hots, beam, next_)
    # So many stay that nothing worse than the least of them can: each of their states has someone as good.
    floor = least if beam.counts[0] == rules.width else -_INF
    floor = max(floor, best - rules.distance)
    count = _extend(q, floor, rules, tree, lm, hot, hots, beam, next_)
    kept = choose(
        next_.score,
        next_.state,
        count,
        rules.width,
        rules.per_node,
        rules.distance,
        next_.table,
        next_.chosen,
    )
    _keep(tree.symbol, beam, next_, kept)


@njit(cache=True, nogil=True)
def frames(log_p, rules, tree, lm, hot, beam, next_):  # type: ignore[no-untyped-def]
    """The beam after all frames of log_p (T, V), in place; it has room for T · width more prefixes."""
    for t in range(len(log_p)):
        frame(log_p[t], rules, tree, lm, hot, beam, next_)


@njit(cache=True, nogil=True)
def unknown_words(tree, lm, beam, states, words):  # type: ignore[no-untyped-def]
    """Fill states and words (pairs,) with what the next frame will ask the model for and it has no arcs for yet."""
    count = 0
    for i in range(beam.counts[0]):
        at = beam.prefixes[beam.now[i]]
        node = at.arc if at.entry < 0 else 0
        for c in range(tree.first[node], tree.first[node + 1]):
            for entry in range(tree.word_first[c], tree.word_first[c + 1]):
                word = tree.word[entry]
                if word >= 0 and not known(lm, at.state, word):
                    states[count], words[count] = at.state, word
                    count += 1
    return count
