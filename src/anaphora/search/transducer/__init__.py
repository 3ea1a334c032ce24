"""Transducers: the loss over all alignments, and the search for the best output, frame by frame."""

from anaphora.ops.transducer_loss import transducer_loss as transducer_loss
from anaphora.ops.transducer_loss import transducer_posteriors as transducer_posteriors
from anaphora.search.transducer._search import Transducer as Transducer
from anaphora.search.transducer._search import TransducerGreedy as TransducerGreedy
from anaphora.search.transducer._search import TransducerHypothesis as TransducerHypothesis
from anaphora.search.transducer._search import TransducerStream as TransducerStream
from anaphora.search.transducer._search import transducer_beam as transducer_beam
from anaphora.search.transducer._search import transducer_greedy as transducer_greedy
