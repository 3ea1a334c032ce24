"""What other libraries call our settings."""

from __future__ import annotations

_SAME: dict[str, str] = {
    "accumulate": "accumulate_grad_batches gradient_accumulation gradient_accumulation_steps update_freq",
    "batch_tokens": "batch batch_size batchsize bs max_tokens_per_batch per_device_train_batch_size",
    "beam": "beam_size beam_width num_beams",
    "attention_window": "local_attention sliding_window window_size",
    "bidirectional": "bidir birnn",
    "cell": "cell_type recurrent_cell rnn rnn_cell rnn_type unit",
    "clip": "clip_norm clipnorm grad_clip gradient_clip gradient_clip_val max_grad_norm",
    "device": "accelerator cuda gpu gpus",
    "dropout": "drop dropout_p dropout_prob dropout_rate hidden_dropout_prob p_dropout",
    "embedding": "d_embed emb_dim embed_dim embed_size embedding_dim embedding_size emsize",
    "embeddings": "pretrained_embeddings pretrained_vectors vectors word_vectors",
    "epochs": "max_epochs n_epochs num_epochs num_train_epochs",
    "feedforward": "d_ff dim_feedforward encoder_ffn_dim ff ffn ffn_dim intermediate_size",
    "heads": "attention_heads n_head n_heads nhead num_attention_heads num_heads",
    "hidden": "d_model dim hidden_dim hidden_size hidden_units model_dim n_embd n_hidden nhid rnn_size units width",
    "freeze": "freeze_backbone freeze_encoder freeze_layers frozen",
    "holdout": "dev_size hold_out test_size val_size val_split valid_size validation_fraction validation_split",
    "horizon": "forecast_horizon prediction_length steps_ahead",
    "init": "checkpoint from_pretrained pretrained pretrained_model",
    "kernel": "filter_size kernel_size",
    "kv_heads": "gqa n_kv_heads num_key_value_heads num_kv_heads",
    "layers": "depth n_layer n_layers nlayers num_hidden_layers num_layers",
    "length_penalty": "alpha lenpen",
    "layer_decay": "discriminative_lr layerwise_decay layerwise_lr_decay llrd lr_decay",
    "lora": "lora_r lora_rank peft rank",
    "lr": "alpha_lr eta learning_rate learning_rate_init step_size",
    "max_length": "max_decode_length max_len max_new_tokens",
    "max_tokens": "block_size max_position_embeddings max_seq_len max_seq_length maxlen truncate",
    "model": "arch architecture model_type preset",
    "momentum": "beta1",
    "norm_first": "pre_norm prenorm",
    "optimizer": "optim optimiser solver",
    "patience": "early_stopping early_stopping_patience n_iter_no_change",
    "positions": "pos_encoding position_encoding positional positional_encoding rope rotary",
    "precision": "amp bf16 dtype fp16 mixed_precision",
    "save_every": "checkpoint_every save_interval save_steps",
    "schedule": "lr_schedule lr_scheduler lr_scheduler_type scheduler",
    "seed": "manual_seed random_seed random_state rng",
    "steps": "max_iter max_steps total_steps",
    "targets": "output_columns target_column target_columns",
    "teacher_forcing": "teacher_forcing_ratio",
    "threads": "cpus n_jobs n_threads num_threads workers",
    "tie": "tie_embeddings tie_weights tie_word_embeddings tied",
    "tokens": "token_type tokenization",
    "top_k": "topk",
    "top_p": "nucleus topp",
    "valid_every": "eval_every eval_interval eval_steps val_check_interval validate_every",
    "vocab_size": "max_features max_vocab n_vocab num_words vocabulary_size",
    "warmup": "num_warmup_steps warm_up warmup_steps",
    "weight_decay": "decay l2 l2_penalty reg wd",
    "window": "context_length lookback seq_len sequence_length",
}  # fmt: skip
_NOTES = {
    "batch_size": " It counts symbols, not examples.",
}
SYNONYMS: dict[str, tuple[str, str]] = {
    word: (name, _NOTES.get(word, "")) for name, words in _SAME.items() for word in words.split()
}
"""A name that users know -> our setting, and what differs."""
