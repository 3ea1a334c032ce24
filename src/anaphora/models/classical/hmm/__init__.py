"""Hidden Markov models, and a tagger made of one."""

from anaphora.models.classical.hmm.model import HMM
from anaphora.models.classical.hmm.tagger import HMMTagger

__all__ = ["HMM", "HMMTagger"]
