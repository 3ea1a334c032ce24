"""Models that are published as one file of tensors."""

from anaphora.foreign.architectures.anarcii import ANARCII
from anaphora.foreign.architectures.beatnet import BEATNET
from anaphora.foreign.architectures.g2p_en import G2P_EN
from anaphora.foreign.architectures.min_gpt import MIN_GPT
from anaphora.foreign.architectures.resemblyzer import RESEMBLYZER
from anaphora.foreign.architectures.silero_vad import SILERO_VAD, SILERO_VAD_BRANCH, SILERO_VAD_ONNX
from anaphora.foreign.published import Published

PUBLISHED: tuple[Published, ...] = (
    SILERO_VAD,
    SILERO_VAD_ONNX,
    SILERO_VAD_BRANCH,
    RESEMBLYZER,
    BEATNET,
    G2P_EN,
    *ANARCII,
    MIN_GPT,
)
