"""One table per architecture, by the ``model_type`` of its config."""

from anaphora.foreign.architectures.bart import BART, MBART
from anaphora.foreign.architectures.bert import BERT
from anaphora.foreign.architectures.distilbert import DISTILBERT
from anaphora.foreign.architectures.electra import ELECTRA
from anaphora.foreign.architectures.gpt2 import GPT2
from anaphora.foreign.architectures.gpt_neox import GPT_NEOX
from anaphora.foreign.architectures.llama import LLAMA, MISTRAL, QWEN2
from anaphora.foreign.architectures.m2m_100 import M2M_100
from anaphora.foreign.architectures.marian import MARIAN
from anaphora.foreign.architectures.megatron_bert import MEGATRON_BERT
from anaphora.foreign.architectures.opt import OPT
from anaphora.foreign.architectures.pegasus import PEGASUS
from anaphora.foreign.architectures.roberta import ROBERTA
from anaphora.foreign.architectures.t5 import MT5, T5
from anaphora.foreign.architectures.vit import DEIT, VIT
from anaphora.foreign.architectures.wav2vec2 import HUBERT, WAV2VEC2
from anaphora.foreign.architectures.whisper import WHISPER
from anaphora.foreign.mapping import Architecture

ARCHITECTURES: dict[str, Architecture] = {
    one.model_type: one
    for one in (
        *(GPT2, OPT, GPT_NEOX, LLAMA, QWEN2, MISTRAL),
        *(BERT, ROBERTA, DISTILBERT, ELECTRA, MEGATRON_BERT),
        *(MARIAN, PEGASUS, BART, MBART, M2M_100, T5, MT5),
        *(VIT, DEIT, WAV2VEC2, HUBERT, WHISPER),
    )
}
"""In the order in which an export looks for one that has a run's form."""
SENSES = ("vit", "deit", "wav2vec2", "hubert", "whisper")
"""Those that see or hear, whose inputs are not symbols."""
