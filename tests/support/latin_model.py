"""The part of py3langid's model for texts in Latin letters: `python -m tests.support.latin_model` writes it.

`sessions_app/latin.npz` loads in a tenth of a second. Unpacking the whole model and extracting this part takes most of
a second.
"""

from typing import Any

import numpy
from py3langid import langid

from sessions_app import lexemes


def made() -> dict[str, Any]:
    """Return the arrays of the file."""
    whole = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    whole.set_languages(list(lexemes._LATIN))
    letters = " " + "".join(filter(lexemes._LATIN_RUN.fullmatch, map(chr, range(0x2000))))
    used = sorted({*letters.encode(), *letters.lower().encode()})
    all_moves = numpy.frombuffer(whole.tk_nextmove, numpy.uint32).reshape(-1, 256)
    all_rows = numpy.frombuffer(whole.tk_row, numpy.uint16)
    states, kept = numpy.zeros(len(all_rows), bool), numpy.zeros(len(all_moves), bool)
    states[0] = True
    while (new := numpy.setdiff1d(all_rows[states], numpy.flatnonzero(kept))).size:
        kept[new] = True
        states[all_moves[numpy.ix_(new, used)]] = True
    # The remaining states and rows get new numbers, which fit into 16 bits.
    numbers, places = (numpy.cumsum(each) - 1 for each in (states, kept))
    moves = numpy.zeros((kept.sum(), 256), numpy.uint16)
    moves[:, used] = numbers[all_moves[kept][:, used]]
    features = numpy.asarray(whole.tk_output, numpy.int32)[states]
    figures = numpy.zeros_like(whole.nb_ptc)
    seen = features[features >= 0]
    figures[seen] = whole.nb_ptc[seen]
    return {
        "languages": numpy.array(whole.nb_classes),
        "priors": whole.nb_pc,
        "figures": figures,
        "features": features,
        "rows": places[all_rows[states]].astype(numpy.uint16),
        "moves": moves.ravel(),
    }


if __name__ == "__main__":
    numpy.savez_compressed(lexemes.LATIN_MODEL, **made())
