// The CTC loss on an NVIDIA GPU, see `loss_gpu.py` for the host's part. Follows gpu/rows.cu.
struct alignas(16) States{double blank,symbol;};  // of place i of a target: the blank before symbol i, and the symbol
#define FIRST (1<<30)  // marks the first of equal symbols
