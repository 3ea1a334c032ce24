"""The keyword arguments of the estimators, for type checkers and editors. Generated: do not edit.

Write it again with ``python -m anaphora.tasks.signatures`` after a setting or a preset has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict


class DrawKeywords(TypedDict, total=False):
    """Sampling; a preset may change the defaults."""

    temperature: float
    """T in p ∝ exp(log p / T) when sampling: below 1 keeps to what is probable, 0 takes the best symbol. Default: 1.0."""
    top_k: int
    """Sample among the k most probable symbols; 0 = among all. Default: 0."""
    top_p: float
    """Sample among the fewest most probable symbols that hold this share of the probability. Default: 1.0."""
    min_p: float
    """Sample among the symbols at least this many times as probable as the best one. Default: 0.0."""


class SearchKeywords(TypedDict, total=False):
    """Search; a preset may change the defaults."""

    decode: Literal["beam", "sample", "mbr"]
    """beam searches for the best output; sample draws outputs at random, as probable as the model thinks they are; mbr (minimum Bayes risk) draws many and takes the one most like all of them. Default: 'beam'."""
    samples: int
    """Outputs drawn for each input with decode = mbr, among which the one that agrees best is taken. Default: 32."""
    beam: int
    """Hypotheses kept at each step; 1 is greedy. Default: 5."""
    length_penalty: float
    """α in score = log p / lengthᵅ; 0 prefers short outputs, 1 is the mean per symbol. Default: 1.0."""
    normalisation: Literal["power", "gnmt", "reward"]
    """How a beam's score makes up for length n: power is log p / nᵅ, gnmt log p / ((5 + n) / 6)ᵅ (Wu 2016), reward log p + α n (He 2016), with α the length_penalty. Default: 'power'."""
    min_length: int
    """Fewest symbols in an output, its end counted. Default: 0."""
    stopping: Literal["exact", "first", "likely"]
    """When a beam ends: exact as soon as nothing can beat what is finished, first when as many are finished as the beam is wide, which is quicker and may miss a better one, likely when besides the best one alive scores no better than the worst of them (transformers). Default: 'exact'."""
    refill: bool
    """As many hypotheses go on as the beam is wide, beside those that end, and one cut at max_length counts as ended (transformers, fairseq); else what has ended leaves its place empty. Default: False."""
    no_repeat: int
    """n: no n symbols in a row may come twice in an output of a beam; 0 allows repeats. Default: 0."""
    repeat_penalty: float
    """λ: a symbol costs an output of a beam λ in log p for each time the output has it already; 0: nothing. Default: 0.0."""
    groups: int
    """Diverse beams (Vijayakumar 2016): the beam is shared among so many groups, each of which avoids what those before it chose. Default: 1."""
    diversity: float
    """What a symbol costs a group of a diverse beam for each time the groups before took it, in log p. Default: 0.5."""
    coverage: float
    """β: adds β Σⱼ log min(Σₜ αₜⱼ, 1) to a beam's score, below 0 while a source symbol j has got less than one whole look (Wu 2016); needs a model with attention. Default: 0.0."""
    int8: bool
    """Decode on a CPU with weights rounded to eight bits: a quarter of the memory and, on a CPU with VNNI, two to four times as fast, for a little accuracy; older processors gain no speed. Default: False."""


class TrainingKeywords(TypedDict, total=False):
    """Training; a preset may change the defaults."""

    seed: int
    """Everything random (weights, order, dropout, sampling) follows from it. Default: 1."""
    steps: int
    """Number of optimizer steps to train for. Where it is not given, presets count it from their `epochs`; the default is that of models of your own. Embedded corpora have a number of their own by preset, which is reported. Default: 4000."""
    epochs: float
    """Passes over the training data to train for, instead of `steps`, which are then counted from the data, between `min_steps` and `max_steps`; 0 = as `steps` says. A preset's bounds do not apply to `epochs` that you give. Default: 0."""
    min_steps: int
    """Fewest steps that `epochs` may come to. Default: 0."""
    max_steps: int
    """Most steps that `epochs` may come to; 0 = no limit. Default: 0."""
    accumulate: int
    """Work through each batch in this many parts, to save memory; the result is the same. Default: 1."""
    checkpoint_activations: bool
    """Keep only the input of each block (of a Transformer, or a linear recurrence) for the backward pass and compute the block again there: less memory, about a third more time, the same gradients. Default: False."""
    shard: Literal["none", "full"]
    """full: each process of torchrun keeps a part of the weights, gradients and optimizer state (FSDP2), instead of all of them (DDP). Checkpoints are then one file per process, and resume on any number of them. Default: 'none'."""
    optimizer: Literal["adam", "adamw", "sgd", "muon", "ntasgd"] | Callable[..., Any]
    """How weights follow gradients. muon: orthogonalised momentum for hidden matrices, AdamW for the rest, with the lr of adamw (Jordan 2024); ntasgd: sgd whose weights are averaged from when the dev metric stops improving (Merity 2018). Or your own: a class called with (groups, lr=…), or a function of the parameter groups. Default: 'adamw'."""
    lr: float
    """Learning rate: the peak value of the schedule. Default: 0.001."""
    weight_decay: float
    """Shrinks weight matrices each step (not biases or norms). Default: 0.0."""
    momentum: float
    """Momentum of sgd; ignored by the others. Default: 0.0."""
    schedule: Literal["constant", "noam", "cosine", "plateau", "one-cycle", "wsd"] | Callable[..., Any]
    """How lr moves: constant; noam (inverse square root); cosine down to 1 % at `steps`; plateau (halved when the dev metric stops improving); one-cycle (up, then down); wsd (warm-up, stable, and down to 0 over the last fifth). All but one-cycle first rise linearly over `warmup` steps. Or your own: a function of (step, steps) that gives the factor of lr. Default: 'cosine'."""
    warmup: int
    """Steps over which lr rises from 0 to its peak; where `epochs` says how long to train, at most a quarter of the steps. Default: 0."""
    clip: float
    """Gradients longer than this (true global L2 norm) are scaled back to it, direction kept; 0 = off. Default: 1.0."""
    clip_by: Literal["global", "group"]
    """What clip compares with: the norm of the whole gradient, or that of each group of parameters by itself (a layer, an embedding, an output), so that only the part whose gradient explodes is scaled back. Default: 'global'."""
    ema: float
    """Decay of a moving average of the weights, used for evaluation and export; 0 = off. Default: 0.0."""
    average_after: int
    """Begin to use the mean of all later weights for evaluation and export when a dev metric is worse than the best of those at least so many evaluations before (the non-monotonic trigger of NT-ASGD); 0 = off, with optimizer = ntasgd 5. Takes the place of ema. Default: 0."""
    swa: float
    """Share of the steps after which the mean of all later weights is used for evaluation and export (stochastic weight averaging, Izmailov 2018), such as 0.75; 0 = off. Takes the place of ema; goes well with schedule = constant or wsd. Default: 0.0."""
    metrics: dict[str, str] | Mapping[str, Any] | Sequence[Any] | Callable[..., Any]
    """Your own dev measures by name, functions of (truth, answers); `metric` may name one, with a minus before it where less is better. Default: {}."""
    callbacks: tuple[str, ...] | Mapping[str, Any] | Sequence[Any] | Callable[..., Any]
    """Your own objects that are called while training (see `an.Callback`), and may stop it. Default: ()."""
    valid_every: int
    """Steps between evaluations on the dev data; 0 = a twentieth of the training (a tenth in translate, transcribe and caption, which search for outputs), at most 1000 steps. Default: 500."""
    save_every: int
    """Steps between checkpoints. Default: 500."""
    save_in_background: bool
    """Copy the state at its step and write the checkpoint in a thread of its own while training goes on: for large models and slow disks. Takes memory for up to two copies. Off, a checkpoint is on the disk before the next step. Default: False."""
    log_every: int
    """Steps between lines of metrics.jsonl. Default: 50."""
    keep: int
    """Newest checkpoints to keep; the best weights are kept besides, as model.safetensors. Default: 2."""
    keep_best: int
    """Checkpoints to keep besides the newest: those with the best dev metrics, each written right after its evaluation. `resume` and `predict` take one by --checkpoint STEP. Default: 0."""
    average_best: int
    """At the end, also judge the mean of the weights of so many of the best evaluations (checkpoint averaging, Vaswani 2017), and keep it where it is better than each of them; their checkpoints are kept (`keep_best`). 0 = off. Default: 0."""
    film: int
    """MiB that small snapshots of the weights at evaluations may take (at most 24 of them, in half precision): the studio and `an.load(RUN, frame=STEP)` follow the training with them. Those of models of which fewer than 3 fit are not taken; 0 = none. Default: 32."""
    patience: int
    """Stop after this many evaluations with neither a better dev metric nor a lower dev loss; 0 = never stop early. Default: 0."""
    on_nan: Literal["stop", "skip"]
    """When loss or gradient is not finite: stop with a report, or skip that batch (at most 10 in a row). Default: 'stop'."""
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    """Arithmetic of the matrix products: auto is bf16 on a GPU that has it, else fp32. Default: 'auto'."""
    batch_invariant: bool
    """On a GPU, compute predictions and scores so that an output never depends, bit for bit, on the batch it is in; slower than the libraries' own kernels. Training and CPUs do not need it. Default: True."""
    device: str
    """"auto" takes a GPU where there is one; or "cpu", "cuda", "cuda:1", "mps". Default: 'auto'."""
    threads: int
    """CPU threads to compute with; 0 = as many as torch takes. Small models are often fastest with 1, and on a busy machine many times faster. Default: 0."""


class HoldoutKeywords(TypedDict, total=False):
    """Holdout; a preset may change the defaults."""

    holdout: float
    """What becomes dev data where none are given: a share below 1 (0.1), or a count from 1 on (500). 0 = a twentieth of the examples, at most 1000; of running text and of series the last tenth. Default: 0."""


class EmbeddingKeywords(TypedDict, total=False):
    """Embedding; a preset may change the defaults."""

    embedding: int
    """Width of the symbol vectors. Default: 256."""


class StackKeywords(TypedDict, total=False):
    """Stack; a preset may change the defaults."""

    hidden: int
    """Width of the states (Transformer: of the model, d_model). Default: 256."""
    layers: int
    """Layers of the network (of encoder and decoder each). Default: 1."""
    dropout: float
    """Share of values set to zero while training, against overfitting. Default: 0.1."""


class BlockKeywords(TypedDict, total=False):
    """Block; a preset may change the defaults."""

    blocks: bool
    """Put each recurrent layer into a residual block with a norm, a convolution over four steps and a feed-forward network (Feng 2024); cells with a matrix as state always come so. Default: False."""
    state_heads: int
    """Matrices that the state of gla, retnet, mamba2, mlstm, deltanet or rwkv7 consists of, parts of slstm whose units mix, heads of attention in griffin; must divide `hidden`; 0 = one for every 32 units. Default: 0."""
    mixed_every: int
    """In cell = griffin every so many blocks is one of local attention (0 = 3, as published), in cell = xlstm one of sLSTM (0 = 8, as published; 1 = all). Default: 0."""
    state_size: int
    """Numbers that each channel of mamba keeps (0 = 16, as published), or rows of each matrix of mamba2 (0 = 64). Default: 0."""
    local_window: int
    """Steps back that the blocks of local attention in cell = griffin see. Default: 128."""
    row_dropout: float
    """In residual blocks: share of the values that a layer reads set to zero while training, the same at every step of a row (Gal & Ghahramani 2016). Default: 0.0."""
    signed: bool
    """Let the eigenvalues of deltanet and gated-deltanet reach −1, so that their state can change its sign (Grazzi 2025): parity needs it. Default: False."""


class RecurrentKeywords(TypedDict, total=False):
    """Recurrent; a preset may change the defaults."""

    cell: str | Callable[..., Any]
    """The recurrent cell. gru resets after the product, as PyTorch and cuDNN do (gru-after is the same), gru-before as published; simple-gru has no reset gate, mgu one gate for both; irnn begins as the identity; slstm has exponential gates. retnet, gla, mamba, mamba2, mlstm, deltanet, gated-deltanet and rwkv7 are linear in their state, which is a matrix; rwkv4 in its vectors; they come in residual blocks, where the network reads a sequence, as griffin (rglru and local attention) and xlstm (mlstm and slstm) do; a decoder beside them has an LSTM. Or your own: a Cell class, or a function of (inputs, hidden) that makes a cell. Default: 'lstm'."""
    forget: bool
    """A forget gate in the LSTM; without it c_t = c_{t−1} + i ∘ c̃, as in 1997. Default: True."""
    forget_bias: float
    """What the bias of the LSTM's forget gate starts at: higher remembers longer from the start. Default: 1.0."""
    peephole: bool
    """Let the gates of the LSTM see the cell c (Gers & Schmidhuber 2000). Default: False."""
    coupled: bool
    """One gate of the LSTM both forgets and takes in: c_t = f ∘ c_{t−1} + (1 − f) ∘ c̃. Default: False."""
    layer_norm: bool
    """LayerNorm inside the LSTM's step (Ba 2016). Default: False."""
    zoneout: float
    """Share of the units that keep their old state at each step while training (Krueger 2017). Default: 0.0."""
    connections: Literal["none", "residual", "highway", "dense", "shortcut"]
    """Between layers: residual y + x, highway g∘y + (1−g)∘x, dense (each layer reads all below it); through time: shortcut, where each step also sees the output `skip` steps back. Default: 'none'."""
    skip: int
    """How many steps connections = shortcut jumps back. Default: 4."""


class DirectionKeywords(TypedDict, total=False):
    """Direction; a preset may change the defaults."""

    bidirectional: bool
    """Read in both directions, so that every place knows the context on both sides. Default: True."""


class TransformerKeywords(TypedDict, total=False):
    """Transformer; a preset may change the defaults."""

    heads: int
    """Attention heads of a Transformer; must divide `hidden`. Default: 4."""
    kv_heads: int
    """Heads of keys and values, each shared by a group of query heads (Ainslie 2023); must divide `heads`; 0 = as many as heads, 1 = multi-query. Default: 0."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
    """How a Transformer knows places: added sines or learned vectors, rotated queries and keys (rotary), scores that fall with the distance, the same on both sides (alibi), or not at all. learned ends at the longest training input. Default: 'sinusoidal'."""
    attention_window: int
    """Each place attends to so many places on either side of it (a model that looks back: before it); 0 = to all. Default: 0."""
    feedforward: int
    """Width inside the Transformer's feed-forward layers. Default: 1024."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
    """Inside the feed-forward layers: relu as published, gelu (BERT), gelu-tanh (GPT-2), silu, or swiglu and geglu, which are gated (Shazeer 2020) and have three matrices instead of two. Default: 'relu'."""
    norm_first: bool
    """LayerNorm before each sublayer (steadier) instead of after it (as published). Default: True."""


class VariantKeywords(TypedDict, total=False):
    """Variant; a preset may change the defaults."""

    norm: Literal["layer", "rms"]
    """How a Transformer normalises: LayerNorm, or RMSNorm, which neither centres nor shifts (Llama). Default: 'layer'."""
    norm_eps: float
    """ε under the root of a Transformer's norms. Default: 1e-05."""
    qk_norm: bool
    """Normalise queries and keys of self-attention by their root mean square, with learned gains, before they are compared (Henry 2020): attention stays steady at higher learning rates. Default: False."""
    biases: Literal["all", "attention", "queries", "none"]
    """Which linear maps of a Transformer's layers have a bias: all, those of attention only, those that make queries, keys and values (Qwen), or none (Llama). Gated feed-forward layers never have one. Default: 'all'."""
    parallel: bool
    """Attention and feed-forward layer side by side instead of one after the other (GPT-NeoX). Default: False."""
    rotary_base: float
    """What the slowest of rotary positions follows from. Default: 10000.0."""
    rotary_share: float
    """Share of the features of each head that rotary positions turn. Default: 1.0."""
    embedding_scale: bool
    """Multiply the symbols' vectors of a Transformer, or of a recurrent language model, by √width as they are read. Off for language models where optimizer is sgd or ntasgd: there the vectors' gradients, √width times as long, would take nearly all of `clip`, and steps of width times the size let them diverge. Default: True."""
    embedding_norm: bool
    """Normalise the sum of symbols' vectors and positions before the first layer (BERT). Default: False."""
    token_types: int
    """Learned vectors for the parts of a pair of texts (BERT); every text here is the first. Default: 0."""
    max_positions: int
    """How many positions = learned has; 0 = as many as the longest training input. With sines, the most symbols that a translator writes. Default: 0."""
    first_position: int
    """Which of the learned positions the first symbol has (RoBERTa and OPT: 2); of a translator also with sines. Default: 0."""


class SmoothingKeywords(TypedDict, total=False):
    """Smoothing; a preset may change the defaults."""

    label_smoothing: float
    """Share of the target probability spread over the whole vocabulary. Default: 0.1."""


class ForcingKeywords(TypedDict, total=False):
    """Forcing; a preset may change the defaults."""

    teacher_forcing: float
    """How often the decoder is fed the true previous symbol while training; below 1 it sometimes gets its own (scheduled sampling). Default: 1.0."""
    forcing_schedule: Literal["constant", "linear", "exponential", "sigmoid"]
    """constant: teacher_forcing from the first step on; else it falls from 1 to teacher_forcing over the steps of training: in a straight line, fast at first, or slowly, fast and slowly again (inverse sigmoid; Bengio 2015). Default: 'constant'."""


class DecoderKeywords(TypedDict, total=False):
    """Decoder; a preset may change the defaults."""

    tie: bool
    """Share the target embedding with the output layer, and with the source embedding when the vocabulary is joint. Default: True."""


class NoiseKeywords(TypedDict, total=False):
    """Noise; a preset may change the defaults."""

    r_drop: float
    """α of R-Drop (Wu 2021): each batch is read twice with different dropout, and α times the divergence of the two predictions, KL in both directions, is added to the loss (5 there); twice the work of a step. 0 = off. Default: 0.0."""
    bpe_dropout: float
    """How often each merge of tokens = bpe is left out while training, so that a word is cut into other pieces each time it is read (BPE-dropout, Provilkov 2020: 0.1); for predictions texts are cut as usual. 0 = off. Default: 0.0."""
    invented: float
    """Share of the training words that are invented, others in each pass: the beginning of what a word and its form have in common comes from another word with the same tags that is inflected alike (Anastasopoulos & Neubig 2019 take random letters). Assumed for words with tags; needs letters on both sides. 0 = off. Default: 0.0."""


class AttentionKeywords(TypedDict, total=False):
    """Attention; a preset may change the defaults."""

    attention: Literal["additive", "dot", "bilinear"]
    """How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), s·h, or sᵀWh. Default: 'bilinear'."""


class PairVariantKeywords(TypedDict, total=False):
    """Pair variant; a preset may change the defaults."""

    decoder_layers: int
    """Layers of the decoder where they are not as many as the encoder's; 0 = as many. Default: 0."""
    head_width: int
    """Width of each attention head where it is not hidden / heads; 0 = that (T5). Default: 0."""
    scaled_scores: bool
    """Divide the scores of attention by the root of a head's width; T5 does not. Default: True."""
    distance_buckets: int
    """So many learned numbers for each head, by the distance of two places, are added to the scores of self-attention (T5: 32), with positions = none; 0 = none. Default: 0."""
    distance_limit: int
    """From this distance on all have the same of the distance_buckets. Default: 128."""
    shrunk_output: bool
    """Divide what the decoder gives by √hidden before the output layer, which shares its vectors (T5). Default: False."""
    shared_vectors: bool
    """Source and target share the vectors of their symbols also where the output layer has its own, with tie = false and joint = true (T5 1.1). Default: False."""
    sine_halves: bool
    """positions = sinusoidal with all sines before all cosines (Marian) instead of in turn. Default: False."""
    sine_spread: bool
    """positions = sinusoidal whose longest wavelength is 10000 · 2π itself (tensor2tensor, M2M-100), not the one before it. Default: False."""


class Seq2SeqKeywords(TypedDict, total=False):
    """Encoder and decoder; a preset may change the defaults."""

    reverse_source: bool
    """Feed the source last symbol first (Sutskever 2014): helps models without attention. Default: False."""
    input_dropout: float
    """Share of the values of symbols' vectors with their positions set to zero while a Transformer is trained, before its first layer. Much of it destroys counting: long runs of equal symbols come out one short. Default: 0.0."""
    input_feeding: bool
    """Feed the attended vector into the next step (Luong 2015). Often a little better, but steps can no longer be trained all at once, so slower. Default: False."""
    lexical: bool
    """Let the symbols that are looked at speak for themselves, past the states (Nguyen & Chiang 2018): a map of their vectors is added before the output layer. A lexicon is learned from fewer pairs, and copying is easy, above all with joint = true. lstm-attention assumes it for up to 5 000 pairs and for words with tags. Default: False."""


class TokenizerKeywords(TypedDict, total=False):
    """Tokenizer; a preset may change the defaults."""

    tokenizer: str | Any
    """How texts become symbols: auto learns it as `tokens` says. Or your own: a tokenizer.json of the `tokenizers` library (a path, or such an object), or a function that cuts a text into pieces, of which the vocab_size most frequent are kept. Default: 'auto'."""


class TextKeywords(TypedDict, total=False):
    """Text; a preset may change the defaults."""

    vocab_size: int
    """Most symbols in the vocabulary. For bpe fewer means shorter pieces; for words the rest becomes <unk>. Default: 8000."""
    lowercase: bool
    """Fold text to lower case before tokenizing. Default: False."""
    bad_rows: Literal["strict", "skip"]
    """What to do with a broken row (wrong columns, broken UTF-8, an empty side): stop and name it, or skip it and report how many were skipped, and why. Default: 'strict'."""


class SidesKeywords(TypedDict, total=False):
    """Sides; a preset may change the defaults."""

    joint: bool
    """One vocabulary for source and target (needed to tie their embeddings) instead of one each. lstm-attention assumes it for words with tags, and for up to 5 000 pairs of which a part is copied. Default: False."""
    source_tokens: Literal["", "char", "word", "bpe", "char+tags"]
    """What one symbol of the source is, where not what `tokens` says. char+tags: a character, but each tag of a word (`go V;PST`) is one symbol. Default: ''."""
    target_tokens: Literal["", "char", "word", "bpe"]
    """What one symbol of the target is, where not what `tokens` says. Default: ''."""
    target_tokenizer: str | Any
    """A tokenizer of your own for the target, where it is another than that of the source. Default: ''."""


class EncoderKeywords(TypedDict, total=False):
    """Encoder; a preset may change the defaults."""

    encoder: Literal["auto"] | Callable[..., Any]
    """What reads the sequence: the preset's network, or your own: a function of a spec that makes a module with forward(x, lengths) from (batch, time, spec.inputs) to (batch, time, width). Default: 'auto'."""


class InitKeywords(TypedDict, total=False):
    """Init; a preset may change the defaults."""

    init: str
    """Run folder of a language model (of a translator: another translator's), or folder of a model of transformers, whose symbols, sizes and weights the model begins with (Dai & Le 2015, GPT, BERT); several, separated by commas, give contextual vectors instead (ELMo). Default: ''."""


class TuningKeywords(TypedDict, total=False):
    """Tuning; a preset may change the defaults."""

    freeze: bool | int | str
    """Which of the weights that init gives stay as they are: true all of them, so that only what is new is trained; a number so many layers, the lowest, and the embeddings; or names, separated by commas, of parts of the model (`encoder.embedding`, `attention`). Default: False."""
    layer_decay: float
    """Layer-wise learning rates: what is new learns with lr, the highest layer that init gives with lr times this, the next lower one with that times this again, and so on down to the embeddings; 1 = all alike. Default: 1.0."""
    unfreeze: Literal["all", "gradual"]
    """When the weights that init gives begin to move: all from the first step; gradual: what is new first, then one layer after the other from the top, the embeddings last (Howard & Ruder 2018). Default: 'all'."""
    unfreeze_every: int
    """Steps between one layer and the next of unfreeze = gradual; 0 = one pass over the data. Default: 0."""
    lora: int
    """Rank of the low-rank changes (LoRA, Hu 2022) that are trained in place of the matrices of init: W + (alpha/rank) B A. Checkpoints then hold these alone; a loaded or exported model has them added up. 0 = none. Default: 0."""
    lora_alpha: float
    """How much a low-rank change counts: it is multiplied by alpha/rank; 0 = twice the rank. Default: 0.0."""
    lora_targets: str
    """Names of the parts whose matrices get a low-rank change, separated by commas; empty = every attention and every feed-forward layer. Default: ''."""


class TeacherKeywords(TypedDict, total=False):
    """Teacher; a preset may change the defaults."""

    teacher: str
    """Run folders whose predictions the model learns besides the truth (distillation, Hinton 2015; `anaphora distill` sets it); of several, separated by commas, the mean. The model takes over their symbols and labels. Default: ''."""
    teacher_weight: float
    """Share of the loss that is the divergence from what teacher predicts. Default: 0.5."""
    teacher_temperature: float
    """T by which the scores of model and teacher are divided before they are compared: above 1 also what is improbable counts. Default: 1.0."""


class PretrainedKeywords(TypedDict, total=False):
    """Pretrained; a preset may change the defaults."""

    init_as: Literal["auto", "weights", "vectors"]
    """What becomes of the language models that init names. weights: the model begins with those of one and changes them; vectors: they stay as they are, and every symbol gets, beside a vector of its own, a learned mixture of all their layers (ELMo); auto: weights of one, vectors of several. Default: 'auto'."""
    embeddings: str
    """Word vectors to begin with: a word2vec file (text or binary) or a saved model of an.Word2Vec, an.GloVe …; words without one begin at random. Default: ''."""
    mix: bool
    """Read a learned mixture of all layers of the Transformer that init gives, the vectors of the symbols among them, γ Σ softmax(s)_l h_l, instead of the highest layer alone (ELMo). Default: False."""
    causal: bool
    """Every place of a Transformer sees only the places before it, as in GPT; a language model that init names decides it. Default: False."""


class FrameKeywords(TypedDict, total=False):
    """Frame; a preset may change the defaults."""

    frontend: Literal["none", "dense", "conv"]
    """What reads each frame of vectors before the layers that read them in order (lip reading, video): nothing, a feed-forward layer, or convolutions over the frame. Texts have none. Default: 'none'."""
    frame: str
    """Rows and columns of a frame that is a picture, such as 24x32, for frontend = conv; empty: a frame is a row of numbers. Default: ''."""


class LookingKeywords(TypedDict, total=False):
    """Looking; a preset may change the defaults."""

    patch: int
    """Side of a small square of a picture: of what a glimpse sees sharply (pixels), of DRAW's grid of filters (filters), of what is one place to a two-dimensional LSTM or a vit (pixels). Default: 4."""
    class_tokens: int
    """Learned vectors that stand before the squares of a vit with pooling = first, which is read from the first of them; DeiT has two. Default: 1."""
    glimpses: int
    """Looks at a picture before the answer. Default: 6."""
    scales: int
    """Windows of a glimpse around one centre, each twice as wide as the one before and as coarse. Default: 2."""
    wander: float
    """While training a glimpse falls beside the place that was chosen, by a normal deviation of this; a picture reaches from -1 to 1. More explores more and learns with more noise. Default: 0.15."""
    directions: Literal[1, 2, 4]
    """Corners from which a two-dimensional LSTM reads a picture: the upper left one, that and the lower right one, or all four. Default: 4."""


class TargetKeywords(TypedDict, total=False):
    """Target; a preset may change the defaults."""

    target: Literal["class", "classes", "number"]
    """What a label is: one class; any number of classes, written a|b|c, or - for none; or a number. Default: 'class'."""
    label_smoothing: float
    """Share of the target probability spread over all classes. Default: 0.0."""
    class_weight: Literal["none", "balanced"]
    """balanced: a mistake counts more the rarer its class is, so that all classes weigh alike. Default: 'none'."""
    threshold: float
    """Of several classes (target = classes) those whose probability is at least this are given; 0 = the dev data choose it, where F1 over all labels is best. Default: 0.0."""
    tolerance: float
    """A number nearer to the true one than this counts as right. Default: 0.04."""
    metric: Literal["auto", "accuracy", "micro_f1", "macro_f1", "loss"] | str
    """The dev measure that decides which weights are best; auto is the loss for numbers, micro_f1 for several classes whose threshold the dev data choose, else accuracy. Default: 'auto'."""


class RegularKeywords(TypedDict, total=False):
    """Regular; a preset may change the defaults."""

    r_drop: float
    """How much two passes with other dropout must agree: the weight of the divergence of their answers beside the mean of their losses (R-Drop); 0 = one pass. Default: 0.0."""
    adversarial: float
    """Train half on embeddings that are moved in the direction in which the loss rises most, by this share of their length; 0 = off. Default: 0.0."""
    mixup: float
    """α of the Beta distribution that says in what shares two examples, after pooling, and their losses are mixed while training; 0 = off. Default: 0.0."""


class RocketKeywords(TypedDict, total=False):
    """Rocket; a preset may change the defaults."""

    thresholds: int
    """At how many heights what each random convolution answers is counted; the model has 2 688 features for each. Default: 4."""
    places: bool
    """Also learn from where in a sequence each random convolution answers most, unless examples that were not seen are predicted better without: it tells what happens first, which counts do not. Default: False."""


class NgramKeywords(TypedDict, total=False):
    """Ngram; a preset may change the defaults."""

    word_ngrams: int
    """Most words of an n-gram of words. Default: 3."""
    char_ngrams: int
    """Most characters of an n-gram of characters, which has at least 2; below 2: words only. Default: 8."""
    apart: bool
    """Weigh the n-grams of words and those of characters by two regressions, whose scores are averaged, instead of by one over both. Default: False."""
    rare_words: float
    """How much single words, of any count and weighted by how rare they are, count beside the n-grams, which are weighted by how much more often texts of a class have them; 0 leaves them out. Default: 0.0."""
    margin: bool
    """Weigh n-grams by a margin between each class and the rest (a linear support vector machine) instead of by logistic regression: more right answers where there are three classes or more, for which it is assumed. Takes twice the time, because how sure the answers are is found on parts of the texts. Default: False."""
    min_count: int
    """N-grams that fewer training texts have are left out. Default: 2."""
    penalty: float
    """How much large weights of n-grams cost: ½ penalty |w|² beside the summed loss of all texts. Default: 0.3."""


class SampleKeywords(TypedDict, total=False):
    """Sample; a preset may change the defaults."""

    length: int
    """Symbols in a sample; in models of lines, at most so many. Default: 200."""


class FrameTargetKeywords(TypedDict, total=False):
    """Frame target; a preset may change the defaults."""

    target: Literal["class", "classes", "number"]
    """What the label of a frame is: one class; any number of classes, written a|b|c, or - for none; or a number. Words have one class. Default: 'class'."""
    threshold: float
    """Of several classes (target = classes) those whose probability is at least this are given. Default: 0.5."""
    scale: Literal["features", "all", "none"]
    """Frames are shifted and scaled to mean 0 and variance 1, as measured on the training data: each feature by itself, all with the same numbers, or not at all. Default: 'features'."""


class PromptKeywords(TypedDict, total=False):
    """Prompt; a preset may change the defaults."""

    decoder_layers: int
    """Layers of the decoder where they are not as many as the encoder's; 0 = as many. Default: 0."""
    written_positions: int
    """Symbols that the decoder has positions for. Default: 448."""
    prompt: str
    """Symbols that stand between <s> and every text, their numbers with spaces between them; ? is the most probable of `languages`. Default: ''."""
    languages: str
    """Symbols of languages, as `prompt`. Default: ''."""
    never: str
    """Symbols that are never written, as `prompt`. Default: ''."""
    never_first: str
    """Symbols that no text begins with, as `prompt`. Default: ''."""


class WaveKeywords(TypedDict, total=False):
    """Wave; a preset may change the defaults."""

    kernels: str
    """Places that each of the convolutions over samples sees, the lowest first. Default: '10 3 3 3 3 2 2'."""
    strides: str
    """By how many places each of these convolutions goes on; their product is subsample. Default: '5 2 2 2 2 2 2'."""
    filters: int
    """Filters of each of these convolutions. Default: 64."""
    filter_norm: Literal["group", "layer"]
    """What is normalised there: each filter of the lowest convolution over the recording (group), or all filters of every convolution at each place (layer). Default: 'group'."""
    filter_bias: bool
    """Whether these convolutions have a bias. Default: False."""
    position_kernel: int
    """Places that the convolution sees which says where a place is. Default: 32."""
    position_groups: int
    """Groups of features in that convolution, each of which sees itself only. Default: 4."""
    hidden_share: float
    """While training, so many places are where a stretch of `hidden_length` places begins that is hidden. Default: 0.05."""
    hidden_length: int
    """Places of a stretch that is hidden. Default: 10."""


class SoundKeywords(TypedDict, total=False):
    """Sound; a preset may change the defaults."""

    rate: int
    """Samples per second at which sound is read; 0 = as in the first training recording, at most 16000. Default: 0."""
    features: Literal["log-mel", "mfcc", "samples", "whisper"] | Callable[..., Any]
    """What a frame holds: log energies in bands that lie as the ear hears, their cosine transform, or a single sample (wav2vec2, which makes its features itself); whisper: the log energies of that model. Or your own: a function of (samples, rate) that makes an array (time, width), a frame every `hop` seconds. Default: 'log-mel'."""
    bins: int
    """Bands of a frame (mfcc: coefficients kept of as many bands or more). Default: 40."""
    bands: int
    """Bands that mfcc are made of, or as many as `bins` where these are more; 0 = 40. Fewer are wider, and so hear less of the pitch of a voice. Default: 0."""
    power: float
    """What becomes of the energies of bands before mfcc are made of them: 0 takes their logarithm, and p > 0 their p-th power, measured by the mean energy of the loud frames: what is much quieter than speech, such as the noise of a microphone, then counts for less. Whole recordings only. Default: 0.0."""
    frame_length: float
    """Seconds of sound in one frame; frames overlap. Default: 0.025."""
    hop: float
    """Seconds from one frame to the next. Default: 0.01."""
    normalise: Literal["features", "means", "level", "speech", "adapted", "running", "unit", "none"]
    """What is taken away from a recording: each feature's own mean and variance; each feature's mean; one mean and one variance of all, its level, which keeps what single short words sound like (unit: the same as models of others do it); speech: the mean of the loud frames alone, with quiet sound cut off, which neither pauses nor short recordings change (log-mel only); adapted: the same, then each feature's mean and variance, together with those of the training set, which count for some frames; running: the latter over what was heard so far, so that sound can be read while it arrives; or nothing. Default: 'features'."""
    speed: float
    """While training, sound is played up to this share slower or quicker (and so lower or higher), as if others spoke. Default: 0.1."""
    pitch: float
    """While training, sound becomes up to this share lower or higher at the same pace. Default: 0.0."""
    warp: float
    """While training, the axis of frequencies is stretched or squeezed by up to this share, as if the speaker were smaller or larger; log-mel and mfcc. Default: 0.0."""
    bend: float
    """While training, parts of the axis of frequencies are stretched and others squeezed by up to this share, each by itself, as if others formed their vowels otherwise; log-mel and mfcc. Default: 0.0."""
    noise: float
    """While training, noise of up to this share of the sound's own loudness is added, from white to dull. Default: 0.0."""
    reverberation: float
    """While training, sound is heard in rooms in which it fades by 60 dB in up to so many seconds. Default: 0.0."""
    channel: float
    """While training, frequencies are made louder or quieter by up to so many decibels, along a smooth random curve, as by other microphones. Default: 0.0."""
    volume: float
    """While training, recordings are made louder or quieter by up to so many decibels. Default: 0.0."""
    pauses: float
    """While training, up to so many seconds of quiet stand before and after a recording, and between those that are joined. Default: 0.0."""
    edges: float
    """Seconds of quiet that are put before and after each recording, while training and ever after, as quiet as it is itself: a word is heard better where something was heard before it. Times are those of the recording. log-mel and mfcc, whole recordings only. Default: 0.0."""
    joined: int
    """While training, up to so many recordings are heard one after the other as one, their transcripts with a space between them. Default: 1."""
    masks: int
    """Stretches of time, and of bands, hidden in each recording while training. Default: 2."""
    time_mask: int
    """Longest stretch of time hidden, in frames. Default: 10."""
    frequency_mask: int
    """Widest stretch of bands hidden. Default: 6."""


class PictureKeywords(TypedDict, total=False):
    """Picture; a preset may change the defaults."""

    picture_size: int
    """Pictures are scaled to fit a square of this many pixels, the rest of which is grey. Default: 64."""
    channels: int
    """Channels of the first layer that sees a picture; they double level by level. Default: 32."""
    halvings: int
    """How often the picture is halved: with picture_size = 64 three make a grid of 8 × 8 places. Default: 3."""
    augment: float
    """While training, pictures are shifted by up to this share of their size, and their brightness and contrast changed by up to as much; 0 = off. Default: 0.0."""
    mirror: bool
    """While training, every second picture is mirrored; not where left and right matter. Default: False."""
    picture_weights: str
    """A safetensors file whose weights the network that sees pictures begins with: the model.safetensors of a run with the same channels, halvings and hidden will do. Default: ''."""


class PooledKeywords(TypedDict, total=False):
    """Pooled; a preset may change the defaults."""

    pooling: Literal["last", "max", "mean", "attention", "concat", "first"]
    """How the states of a sequence become one vector: the last state, the largest value of each unit, their mean, a mean weighted by attention, the first three side by side (concat), or the state of a <s> put first. Default: 'max'."""
    scale: Literal["features", "all", "none"]
    """Vectors are shifted and scaled to mean 0 and variance 1, as measured on the training data: each feature by itself, all with the same numbers, or not at all. Default: 'features'."""


class LikenessKeywords(TypedDict, total=False):
    """Likeness; a preset may change the defaults."""

    positives: Literal["auto", "pairs", "labels", "views"]
    """What is alike: the two texts of a row (pairs), inputs of one label (labels), or two views of the same input, cut and dropped out differently (views); auto: what the data have. Default: 'auto'."""
    vector_size: int
    """How many numbers a vector has. Default: 128."""
    similarity_temperature: float
    """Cosines are divided by it before the softmax; less: the nearest wrong inputs count more. Default: 0.05."""
    crop: float
    """Least share of an input that a view keeps: a stretch of it at random; 1: views differ by dropout alone. Default: 0.7."""
    metric: Literal["mrr", "recall_at_1", "recall_at_10", "loss"] | str
    """The dev measure that decides which weights are best. Default: 'mrr'."""


TranslatorModel = Literal["rnn", "lstm", "lstm-attention", "gru-attention", "transformer"] | Callable[..., Any]
"""The presets of `an.Translator`, or a model of your own."""


class TranslatorKeywords(DrawKeywords, SearchKeywords, TrainingKeywords, HoldoutKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, SmoothingKeywords, ForcingKeywords, DecoderKeywords, NoiseKeywords, AttentionKeywords, PairVariantKeywords, Seq2SeqKeywords, TokenizerKeywords, TextKeywords, SidesKeywords, EncoderKeywords, InitKeywords, TuningKeywords, TeacherKeywords, total=False):
    """The settings of `an.Translator`; ``help(an.Translator)`` shows the defaults."""

    metric: Literal["chrf", "bleu", "exact_match", "loss"] | str
    """The dev measure that decides which weights are best. chrF also tells outputs of few words apart, where BLEU is not defined for lack of four-word sequences. Default: 'chrf'."""
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"]
    """How sacrebleu splits text before counting; `none` for text that is tokenized already. Default: '13a'."""
    valid_examples: int
    """Most dev examples decoded at each evaluation while training. Default: 1000."""
    max_length: int
    """Most symbols in an output; 0 = 3 × the source’s symbols + 20, or, where training pairs have more, half as many again as the longest of them. Default: 0."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 4096."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol is: a character, a word between spaces, or a piece learned by byte pair encoding (needs no list of words and knows no unknown word). Default: 'bpe'."""
    max_tokens: int
    """Longer training examples are left out (and counted); longer inputs at prediction are cut, with a warning. Default: 256."""


ClassifierModel = Literal["ngrams", "rocket", "fasttext", "bow", "conv", "rnn", "lstm", "gru", "bilstm", "mingru", "mamba", "griffin", "gla", "deltanet", "xlstm", "transformer", "glimpse", "draw", "grid-lstm", "vit"] | Callable[..., Any]
"""The presets of `an.Classifier`, or a model of your own."""


class ClassifierKeywords(TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, PretrainedKeywords, FrameKeywords, LookingKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, TokenizerKeywords, TextKeywords, TargetKeywords, RegularKeywords, RocketKeywords, NgramKeywords, EncoderKeywords, TeacherKeywords, total=False):
    """The settings of `an.Classifier`; ``help(an.Classifier)`` shows the defaults."""

    max_tokens: int
    """Longer texts are cut, with a warning, in training and at prediction. Longer training sequences of vectors are left out (and counted), and cut at prediction. Default: 1024."""
    pooling: Literal["last", "max", "mean", "attention", "concat", "first", "first-tanh", "first-relu", "first-gelu"]
    """How the states of a sequence become one vector: the last state, the largest value of each unit, their mean, a mean weighted by attention, the first three side by side (concat; what a recurrent language model of init is read by), or the state of a <s> put first (BERT's [CLS]), by itself or through a layer of its own with that activation (first-tanh is BERT's pooler). Default: 'last'."""
    two_scores: bool
    """A score for each of two classes, as models of others have, instead of one for the second. Default: False."""
    kernel: int
    """Widest window of a convolution; windows from 3 symbols up to it are used. Default: 5."""
    word_dropout: float
    """Share of symbols replaced by <unk> while training, so that no single word decides. Default: 0.0."""
    scan: Literal["rows", "pixels", "picture"]
    """How an image becomes a sequence: a row at each step, or a pixel at each step; picture: it does not, and is looked at as it is (always so in glimpse, draw, grid-lstm and vit, and only there). Default: 'rows'."""
    features: Literal["none"] | Callable[..., Any]
    """What a sequence of vectors becomes before it is scaled and read: itself, or yours: a function of an array (time, features) that makes another. Default: 'none'."""
    scale: Literal["features", "all", "none"]
    """Vectors are shifted and scaled to mean 0 and variance 1, as measured on the training data: each feature (of pictures each channel) by itself, all with the same numbers (as suits images), or not at all. Default: 'features'."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 2048."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol is: a character, a word between spaces, or a piece learned by byte pair encoding (needs no list of words and knows no unknown word). Default: 'bpe'."""


LanguageModelModel = Literal["ngram", "nplm", "rnn", "lstm", "awd-lstm", "gru", "mingru", "mamba", "griffin", "gla", "deltanet", "xlstm", "transformer", "masked"] | Callable[..., Any]
"""The presets of `an.LanguageModel`, or a model of your own."""


class LanguageModelKeywords(DrawKeywords, SampleKeywords, TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, TransformerKeywords, VariantKeywords, TokenizerKeywords, TextKeywords, TeacherKeywords, total=False):
    """The settings of `an.LanguageModel`; ``help(an.LanguageModel)`` shows the defaults."""

    bidirectional: bool
    """Only for models that see the whole input; a model of what comes next cannot read backwards. Default: False."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol is: a character, a word between spaces, or a piece learned by byte pair encoding (needs no list of words and knows no unknown word). Default: 'char'."""
    metric: Literal["loss", "perplexity", "bits_per_character", "accuracy"]
    """The dev measure that decides which weights are best. Default: 'loss'."""
    lines: bool
    """Read every line as a text of its own (names, sentences) instead of all lines as one running text, in which a line break is a symbol like any other. Default: False."""
    backward: bool
    """Read every line from its end to its beginning (needs lines = true): the other half of the vectors in context that a tagger may begin with (ELMo). Default: False."""
    bptt: int
    """Steps of truncated back-propagation through time: gradients reach so far back, while the state is carried on through the whole text. Default: 64."""
    context: int
    """How many symbols a Transformer reads at a time, and looks back over at most. Default: 256."""
    order: int
    """n of n-grams and of a window: a symbol is predicted from the n − 1 before it. Default: 5."""
    prune: int
    """Of n-grams of more symbols than this, those that occur once are left out of the counts; 0 = none are. Default: 0."""
    smoothing: Literal["kneser-ney", "witten-bell", "add-k"]
    """How an n-gram model gives a share of its probability to what it has not seen. Default: 'kneser-ney'."""
    direct: bool
    """Connect the window's vectors directly with the output besides the hidden layer (Bengio 2003). Default: False."""
    tie: bool
    """Share the vectors of the symbols with the output layer (Press & Wolf 2017). Default: True."""
    unknown_share: float
    """Share of the words that occur once in the training text that are read as <unk> there, so that the model learns how often an unknown word comes; words that the vocabulary leaves out count (tokens = word). Default: 0.0."""
    mixtures: int
    """K: softmaxes whose mixture is p of the next symbol (Yang 2018): more than one can tell apart more contexts than vectors of their width can, and each takes the time of an output layer. Default: 1."""
    embedding_dropout: float
    """Share of the words left out of a whole batch while training. Default: 0.0."""
    input_dropout: float
    """Share of values of the symbols' vectors set to zero while training. Default: 0.0."""
    output_dropout: float
    """Share of values that enter the output layer set to zero while training. Default: 0.0."""
    weight_dropout: float
    """Share of the recurrent weights set to zero for a whole batch while training (Merity 2018). Default: 0.0."""
    variational: bool
    """Drop the same values at every step of a row (Gal & Ghahramani 2016) instead of others each time. Default: False."""
    activation_penalty: float
    """α: adds α · mean(y²) of the last layer's outputs to the loss (AR). Default: 0.0."""
    temporal_penalty: float
    """β: adds β · mean((y_t − y_{t−1})²) of the last layer's outputs to the loss, for states that change slowly (TAR). Default: 0.0."""
    documents: Literal["none", "blank"]
    """Documents in running text that a Transformer keeps apart: blank = an empty line ends one, and no place attends to another document of its window (document masks). With lines = true every line is by itself anyway. Default: 'none'."""
    masked_share: float
    """Share of the symbols that are hidden and to be guessed from both sides (BERT). Default: 0.15."""
    output_transform: bool
    """A layer with an activation and a norm before the output layer of a masked language model (BERT). Default: False."""
    valid_symbols: int
    """Most dev symbols read at each evaluation while training; 0 = all of them. Default: 100000."""
    compile: Literal["auto", "off"]
    """auto replays a Transformer's training step from captured graphs on an NVIDIA GPU; steps that the library has no kernels for (as those with dropout) are compiled by torch: a minute of waiting, then faster steps. Default: 'auto'."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 2048."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""
    max_tokens: int
    """Longer training examples are left out (and counted); longer inputs at prediction are cut, with a warning. Default: 256."""


TaggerModel = Literal["hmm", "mlp", "conv", "lstm", "bilstm", "bilstm-crf", "mingru", "mamba", "griffin", "gla", "deltanet", "xlstm", "transformer"] | Callable[..., Any]
"""The presets of `an.Tagger`, or a model of your own."""


class TaggerKeywords(TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, PretrainedKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, FrameKeywords, FrameTargetKeywords, EncoderKeywords, TeacherKeywords, total=False):
    """The settings of `an.Tagger`; ``help(an.Tagger)`` shows the defaults."""

    vocab_size: int
    """Most words that have a vector; the rest becomes <unk>. Default: 30000."""
    lowercase: bool
    """One vector for a word whatever its capitals; its characters still show them. Default: True."""
    characters: Literal["lstm", "conv", "none"]
    """How the spelling of a word is read besides its vector: by an LSTM in both directions, by a convolution, or not at all. Default: 'lstm'."""
    character_embedding: int
    """Width of the vectors of characters. Default: 32."""
    character_hidden: int
    """Width of what the spelling gives: of each direction, or filters of the convolution. Default: 64."""
    hide_rare: float
    """α: while training, a word seen n times is hidden (becomes <unk>) with probability α/(α + n), so that the model learns to do without it. Default: 0.25."""
    pieces: Literal["first", "last", "mean"]
    """What stands for a word that a model of init reads in pieces: the state of its first or last piece, or the mean of all. A model that looks back only is read from the last. Default: 'first'."""
    crf: bool
    """Score whole sequences of tags by a CRF above the network instead of each tag by itself; bilstm-crf always does. Default: False."""
    scheme: Literal["auto", "none", "bio", "iob1", "bioes", "bilou"]
    """How tags mark spans (B-PER I-PER O): only sequences that are valid in it are predicted, and spans are scored. auto finds out from the training tags; none takes tags as they are. Default: 'auto'."""
    balance_spans: bool
    """Where tags mark spans: after training, shift the score of O (outside of spans) to where F1 on the dev data is best. A tagger of rare spans finds too few of them otherwise. Needs 50 spans in the dev data. Default: True."""
    order: Literal[2, 3]
    """Tags that the HMM looks at together: 2 (each depends on the one before) or 3. Default: 3."""
    kernel: int
    """Words or frames that a window of mlp or conv sees, the middle one included; odd. Default: 7."""
    max_tokens: int
    """Longer training sentences are left out (and counted); of frames the longest sequence fits unless this is given. At prediction sequences may have any length. Default: 256."""
    bad_rows: Literal["strict", "skip"]
    """What to do with a sentence that has a broken row (wrong columns, no tag, broken UTF-8): stop and name the row, or leave the sentence out and report how many were, and why. Default: 'strict'."""
    metric: Literal["auto", "accuracy", "f1", "loss"] | str
    """The dev measure that decides which weights are best: auto is f1 of spans where tags mark spans, the loss for numbers, else accuracy. Default: 'auto'."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 1024."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""


ForecasterModel = Literal["median", "var", "kalman", "linear", "mlp", "rnn", "lstm", "gru", "conv", "mingru", "mamba", "griffin", "gla", "deltanet", "xlstm", "transformer"] | Callable[..., Any]
"""The presets of `an.Forecaster`, or a model of your own."""


class ForecasterKeywords(TrainingKeywords, HoldoutKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, TransformerKeywords, VariantKeywords, total=False):
    """The settings of `an.Forecaster`; ``help(an.Forecaster)`` shows the defaults."""

    loss: Literal["mse", "mae"] | Callable[..., Any]
    """What is minimised for continuous targets: the mean squared or the mean absolute error; or your own, a function of (outputs, targets) that gives one number per value. Default: 'mse'."""
    horizon: int
    """Steps ahead, all forecast at once. 0 = aligned: the targets of each step are predicted from the other columns up to that step. Default: 24."""
    window: int
    """Steps of history that are read. 0 = whole series from their beginning, with outputs after every step: for many short series, such as pieces of music. Default: 96."""
    targets: str
    """Columns to forecast, separated by commas; empty = all that are not known in advance. Default: ''."""
    known: str
    """Columns whose future is known in advance (a calendar, a plan, a control), separated by commas. Default: ''."""
    output: Literal["continuous", "count", "binary"]
    """What targets are: numbers (squared or absolute error), counts (Poisson), or 0 and 1 (Bernoulli), such as the notes of a piano roll. Default: 'continuous'."""
    nade: int
    """Units through which the 0s and 1s of a step depend on each other, each on those in the columns before it (NADE, Larochelle 2011): notes come as chords, and −log p is that of the whole step. Needs output = binary; 0 = targets are independent given the steps before, -1 = 128 for piano rolls, else 0. Default: -1."""
    neighbours: int
    """Also predict each target from the targets at most so many columns away in the last step, by weights that the network gives for each distance, the same for all columns: voices move by intervals, whatever the key. For columns in an order, such as keys; 0 = off, -1 = 12, an octave, for piano rolls, else 0. Default: -1."""
    transpose: int
    """Move each piece of a piano roll up or down by at most so many keys at random while training: the same music in other keys. Needs output = binary and the 88 keys as columns; 0 = never, -1 = 2 for piano rolls, else 0. Default: -1."""
    normalize: Literal["none", "last", "window"]
    """What is taken out of each window of the targets and put back into its forecasts: nothing, its last value, or its mean and deviation. Networks take out the last value where the level of the training series wanders, unless you say otherwise. Default: 'none'."""
    apart: bool
    """Forecast each target from its own history with one shared network, instead of all from all. Default: False."""
    patch: int
    """Steps that make one place of the network; must divide `window`. Default: 1."""
    kernel: int
    """Steps that a convolution sees, of every 2^layer steps back. Default: 3."""
    lags: int
    """Steps a VAR or an mlp looks back; 0 = chosen by Schwarz's criterion (mlp: the whole window). Default: 0."""
    max_lags: int
    """Most lags that a VAR chooses among, where the series are long enough. Default: 50."""
    structure: Literal["auto", "level", "trend", "dynamic"]
    """The state-space model: a level with a season, the same with a slope, or a dynamical system with all matrices learned; auto = the one with the smallest error on the dev data. Default: 'auto'."""
    states: int
    """Hidden states of a dynamical system (rounded up to whole lags of all its outputs). Default: 4."""
    iterations: int
    """Most steps of expectation and maximisation. Default: 50."""
    period: int
    """Steps of a season; 0 = found in the training data, 1 = there is none. Default: 0."""
    nonnegative: bool
    """Forecast nothing below 0, and end no interval there, where neither a training value of the target nor one of the series at hand is below 0. false = values below 0 may come, as in temperatures of which training saw the summer. For continuous targets. Default: True."""
    metric: Literal["loss", "mse", "mae"] | str
    """The dev measure that decides which weights are best; loss is what training minimises. Default: 'loss'."""
    valid_examples: int
    """Most dev windows forecast at each evaluation while training, evenly spread. Default: 1000."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 6144."""


TranscriberModel = Literal["bilstm-ctc", "mfcc-ctc", "lstm-ctc", "transducer", "conv-ctc", "transformer-ctc", "conformer-ctc", "wav2vec2", "whisper", "attention", "joint"] | Callable[..., Any]
"""The presets of `an.Transcriber`, or a model of your own."""


class TranscriberKeywords(TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, SmoothingKeywords, ForcingKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, TokenizerKeywords, TextKeywords, FrameKeywords, PromptKeywords, WaveKeywords, SoundKeywords, EncoderKeywords, total=False):
    """The settings of `an.Transcriber`; ``help(an.Transcriber)`` shows the defaults."""

    batch_tokens: int
    """Frames in one batch (padded), over all devices together. More is smoother and, on a GPU, faster. Default: 4000."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol of the transcript is: a character, whatever stands between spaces (a word, or a phone), or a piece learned by byte pair encoding. Default: 'char'."""
    max_tokens: int
    """Training recordings of more frames are left out (and counted); longer ones at prediction are read in overlapping windows. Default: 3000."""
    subsample: int
    """So many frames become one at the front, which makes everything above it that much quicker. CTC needs at least one frame for every symbol that is left. Default: 2."""
    differences: int
    """Beside each frame the network reads how it changes over the five frames around it: 1 its slope, 2 also the slope of that. A frame then needs some that come later, so sound is not heard while it arrives. Default: 0."""
    kernel: int
    """Places that a convolution of conv-ctc, mfcc-ctc or conformer-ctc sees; odd, unless it is conformer-ctc with a chunk. Default: 5."""
    members: int
    """So many networks of conv-ctc or mfcc-ctc, which differ in how they began, learn side by side from the same recordings, and what they think of each frame is averaged; half of the loss is that of this average. Fewer errors, and about as many times the time. Default: 1."""
    band_members: int
    """Of the members so many read sound as a picture of time and bands, with filters that slide along both, and are so less misled by a voice whose resonances lie elsewhere; log-mel, or mfcc with normalise = adapted or running. Default: 0."""
    chunk: int
    """Places, each of `subsample` frames, that conformer-ctc hears at once: each sees all of its chunk, so that words come at most so much later; 0: the whole recording, which cannot be heard while it arrives. Default: 16."""
    left: int
    """Chunks before its own that a place of conformer-ctc sees. Default: 4."""
    attention: Literal["additive", "bilinear"]
    """How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), or sᵀWh. Default: 'additive'."""
    ctc_weight: float
    """w in w·CTC + (1 − w)·attention, of the loss of the preset joint and of the scores of its outputs; of the loss of the preset transducer alike. Default: 0.3."""
    order_weight: float
    """Added to the loss of a decoder, in nats, for every frame that its attention goes back: speech is written in the order it is heard. 0 leaves attention free. Default: 0.2."""
    consistency: float
    """Each recording is heard as two copies, varied and masked each in its own way but at the same pace, and so many times what CTC thinks of them differs (KL) is added to the loss (CR-CTC); a batch then holds half as many recordings. 0.2 is usual. Default: 0.0."""
    mixup: float
    """While training, each recording is heard with another one below it, and the loss is mixed by the same shares; α of the Beta distribution that says how much of it the quieter one is. 0 = off; 0.2 to 0.5 are usual, and help with voices unlike those of training. Default: 0.0."""
    label_prior: float
    """CTC divides the probability of each symbol, and of the blank, by its share of all frames to this power. Symbols then last as long as they sound instead of a single frame, and voices unlike those of training leave fewer words out. 0 is plain CTC. Default: 0.0."""
    valid_examples: int
    """Of the dev recordings so many, the first ones, are transcribed at an evaluation. Default: 200."""
    metric: Literal["wer", "cer", "loss"] | str
    """The dev measure that decides which weights are best; the smaller the better. Default: 'wer'."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""


CaptionerModel = Literal["lstm", "lstm-attention", "lstm-hard", "transformer"] | Callable[..., Any]
"""The presets of `an.Captioner`, or a model of your own."""


class CaptionerKeywords(DrawKeywords, SearchKeywords, TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, TransformerKeywords, VariantKeywords, SmoothingKeywords, ForcingKeywords, DecoderKeywords, AttentionKeywords, PictureKeywords, TokenizerKeywords, TextKeywords, total=False):
    """The settings of `an.Captioner`; ``help(an.Captioner)`` shows the defaults."""

    max_length: int
    """Most symbols in a caption. Default: 60."""
    metric: Literal["cider", "bleu", "exact_match", "loss"] | str
    """The dev measure that decides which weights are best. Default: 'cider'."""
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"]
    """How sacrebleu splits text before counting; `none` for text that is tokenized already. Default: '13a'."""
    embedding: int
    """Width of the vectors of words, and of those of the places of a picture (Transformer: both are hidden). Default: 128."""
    soft_share: float
    """How much of the loss of hard attention is that of the expected context (soft attention) instead of drawn places; 0.5 as in Xu 2015. Default: 0.5."""
    valid_examples: int
    """Most dev pictures captioned at each evaluation while training. Default: 500."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 1024."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol is: a character, a word between spaces, or a piece learned by byte pair encoding (needs no list of words and knows no unknown word). Default: 'word'."""
    max_tokens: int
    """Longer training examples are left out (and counted); longer inputs at prediction are cut, with a warning. Default: 256."""


AnswererModel = Literal["lstm-attention", "transformer", "question-only"] | Callable[..., Any]
"""The presets of `an.Answerer`, or a model of your own."""


class AnswererKeywords(TrainingKeywords, HoldoutKeywords, TuningKeywords, InitKeywords, PictureKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, TokenizerKeywords, TextKeywords, total=False):
    """The settings of `an.Answerer`; ``help(an.Answerer)`` shows the defaults."""

    tokens: Literal["char", "word", "bpe"]
    """What one symbol of a question is: a character, a word between spaces, or a piece learned by byte pair encoding. Default: 'word'."""
    max_tokens: int
    """Longer questions are left out of training (and counted); at prediction they are cut, with a warning. Of a dialogue the last so many symbols are read. Default: 64."""
    looks: int
    """How many places of the picture a question looks at, side by side. Default: 4."""
    label_smoothing: float
    """Share of the target probability spread over all answers. Default: 0.0."""
    answers: int
    """Most answers that can be given: the commonest of the training data; other questions teach nothing. Default: 3000."""
    history: int
    """Dialogue: so many of the questions about the same picture that came before, with their answers, are read before each question. Default: 0."""
    metric: Literal["accuracy", "loss"] | str
    """The dev measure that decides which weights are best. Default: 'accuracy'."""
    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 1024."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""


EmbedderModel = Literal["bow", "bilstm", "transformer"] | Callable[..., Any]
"""The presets of `an.Embedder`, or a model of your own."""


class EmbedderKeywords(TrainingKeywords, HoldoutKeywords, EmbeddingKeywords, StackKeywords, BlockKeywords, RecurrentKeywords, DirectionKeywords, TransformerKeywords, VariantKeywords, PooledKeywords, FrameKeywords, TokenizerKeywords, TextKeywords, LikenessKeywords, EncoderKeywords, total=False):
    """The settings of `an.Embedder`; ``help(an.Embedder)`` shows the defaults."""

    batch_tokens: int
    """Symbols in one batch (padded, the longer side counts), over all devices together. Larger is smoother and, on a GPU, faster per symbol. Default: 4096."""
    loss: Literal["auto"] | Callable[..., Any]
    """What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one number per item; the loop sums and weights them. Default: 'auto'."""
    tokens: Literal["char", "word", "bpe"]
    """What one symbol is: a character, a word between spaces, or a piece learned by byte pair encoding (needs no list of words and knows no unknown word). Default: 'bpe'."""
    max_tokens: int
    """Longer training examples are left out (and counted); longer inputs at prediction are cut, with a warning. Default: 256."""
