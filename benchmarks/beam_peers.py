"""The same encoder-decoder for ours, Hugging Face Transformers and CTranslate2: one set of weights in three forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.models.decoders import TransformerDecoder
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import Embedding, Output, transformer
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Sinusoidal

LAYERS, WIDTH, HEADS, INNER, SYMBOLS = 6, 512, 8, 2048, 32_000
PAD, UNK, BOS, EOS = range(4)
LONGEST = 512


def random_model() -> Seq2Seq:
    """Post-norm as published, sinusoidal positions, one embedding; random, and it never ends by itself."""
    torch.manual_seed(0)
    embedding, output, positions = (
        Embedding(SYMBOLS, WIDTH, scaled=True),
        Output(WIDTH, SYMBOLS),
        Sinusoidal(WIDTH),
    )

    def heads() -> MultiHead:
        return MultiHead(WIDTH, HEADS)

    def feed() -> transformer.FeedForward:
        return transformer.FeedForward(WIDTH, INNER)

    reader = transformer.TransformerEncoder(transformer.EncoderLayer(heads(), feed()), LAYERS)
    writer = transformer.TransformerDecoder(transformer.DecoderLayer(heads(), heads(), feed()), LAYERS)
    model = Seq2Seq(
        TransformerEncoder(embedding, reader, positions=positions),
        TransformerDecoder(embedding, writer, output, positions=positions),
    )
    with torch.no_grad():
        output.weight.mul_(2)  # sure enough of itself that rounding does not change what is best
        output.bias[[PAD, UNK, BOS, EOS]] = -100.0
    return model.eval()


def hugging_face(model: Seq2Seq) -> Any:
    """A Marian model with our weights."""
    from transformers import MarianConfig, MarianMTModel, logging

    logging.set_verbosity_error()
    sizes = {
        f"{side}_{part}": value
        for side in ("encoder", "decoder")
        for part, value in (("layers", LAYERS), ("attention_heads", HEADS), ("ffn_dim", INNER))
    }
    config = MarianConfig(
        vocab_size=SYMBOLS,
        d_model=WIDTH,
        activation_function="relu",
        dropout=0.0,
        scale_embedding=True,
        tie_word_embeddings=False,
        max_position_embeddings=LONGEST,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **sizes,
    )
    peer = MarianMTModel(config).eval()
    table = model.encoder.positions.table(LONGEST, torch.empty(0))
    with torch.no_grad():
        for side in (peer.model.encoder, peer.model.decoder):
            side.embed_tokens.weight.copy_(model.encoder.embedding.weight)
            side.embed_positions.weight.copy_(table)
        _fill_marian(peer.model.encoder.layers, model.encoder.stack.layers, cross=False)
        _fill_marian(peer.model.decoder.layers, model.decoder.stack.layers, cross=True)
        peer.lm_head.weight.copy_(model.decoder.output.weight)
        peer.final_logits_bias.copy_(model.decoder.output.bias[None])
    return peer


def _fill_marian(theirs: Any, ours: Any, *, cross: bool) -> None:
    def linear(there: Any, weight: Tensor, bias: Tensor) -> None:
        there.weight.copy_(weight)
        there.bias.copy_(bias)

    def attention(there: Any, here: Any) -> None:
        parts = zip(here.inward.weight.chunk(3), here.inward.bias.chunk(3), strict=True)
        for name, (weight, bias) in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
            linear(getattr(there, name), weight, bias)
        linear(there.out_proj, here.outward.weight, here.outward.bias)

    for there, here in zip(theirs, ours, strict=True):
        attention(there.self_attn, here.attention)
        norms = [(there.self_attn_layer_norm, here.around_attention)]
        if cross:
            attention(there.encoder_attn, here.cross_attention)
            norms.append((there.encoder_attn_layer_norm, here.around_cross_attention))
        linear(there.fc1, here.feedforward.first.weight, here.feedforward.first.bias)
        linear(there.fc2, here.feedforward.second.weight, here.feedforward.second.bias)
        for norm, around in (*norms, (there.final_layer_norm, here.around_feedforward)):
            linear(norm, around.norm.weight, around.norm.bias)


def ctranslate2(model: Seq2Seq, folder: str, compute_type: str) -> Any:
    """A translator with our weights, saved to ``folder`` first."""
    import ctranslate2 as ct2

    spec = ct2.specs.TransformerSpec.from_config(
        (LAYERS, LAYERS), HEADS, pre_norm=False, activation=ct2.specs.Activation.RELU
    )
    table = model.encoder.positions.table(LONGEST, torch.empty(0)).numpy()
    embedding = model.encoder.embedding.weight.detach().numpy()
    for side in (spec.encoder, spec.decoder):
        first = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        first.weight, side.scale_embeddings = embedding, True
        side.position_encodings.encodings = table
    _fill_spec(spec.encoder.layer, model.encoder.stack.layers, cross=False)
    _fill_spec(spec.decoder.layer, model.decoder.stack.layers, cross=True)
    spec.decoder.projection.weight = model.decoder.output.weight.detach().numpy()
    spec.decoder.projection.bias = model.decoder.output.bias.detach().numpy()
    words = ["<pad>", "<unk>", "<s>", "</s>", *(str(i) for i in range(EOS + 1, SYMBOLS))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = spec.config.add_source_bos = False
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(folder)
    return ct2.Translator(folder, device="cpu", compute_type=compute_type, intra_threads=1, inter_threads=1)


def _fill_spec(theirs: Any, ours: Any, *, cross: bool) -> None:
    def linear(there: Any, weight: Tensor, bias: Tensor) -> None:
        there.weight, there.bias = weight.detach().numpy().copy(), bias.detach().numpy().copy()

    def norm(there: Any, around: Any) -> None:
        there.gamma, there.beta = around.norm.weight.detach().numpy(), around.norm.bias.detach().numpy()

    for there, here in zip(theirs, ours, strict=True):
        own = here.attention
        linear(there.self_attention.linear[0], own.inward.weight, own.inward.bias)
        linear(there.self_attention.linear[1], own.outward.weight, own.outward.bias)
        norm(there.self_attention.layer_norm, here.around_attention)
        if cross:
            weight, bias = here.cross_attention.inward.weight, here.cross_attention.inward.bias
            linear(there.attention.linear[0], weight[:WIDTH], bias[:WIDTH])
            linear(there.attention.linear[1], weight[WIDTH:], bias[WIDTH:])
            linear(
                there.attention.linear[2],
                here.cross_attention.outward.weight,
                here.cross_attention.outward.bias,
            )
            norm(there.attention.layer_norm, here.around_cross_attention)
        linear(there.ffn.linear_0, here.feedforward.first.weight, here.feedforward.first.bias)
        linear(there.ffn.linear_1, here.feedforward.second.weight, here.feedforward.second.bias)
        norm(there.ffn.layer_norm, here.around_feedforward)
