// The transducer loss on an NVIDIA GPU, see `lattice.py` for the formulas and `loss_gpu.py` for the host's part. Follows gpu/rows.cu.
//
// Nodes (t, u) of a row lie diagonal by diagonal, as (T_most + width - 1, width): those with the same t + u, which depend on the
// diagonal before alone, are next to each other.
struct alignas(16) Steps{double blank,label;};  // log p of the two ways out of a node
