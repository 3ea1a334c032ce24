"""One table per architecture, by the ``model_type`` of its config."""

from anaphora.foreign.architectures.bart import BART, M2M_100, MARIAN, MBART, PEGASUS
from anaphora.foreign.architectures.bert import BERT, DISTILBERT, ELECTRA, MEGATRON_BERT, ROBERTA
from anaphora.foreign.architectures.gpt import GPT2, GPT_NEOX, OPT
from anaphora.foreign.architectures.llama import LLAMA, MISTRAL, QWEN2
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
