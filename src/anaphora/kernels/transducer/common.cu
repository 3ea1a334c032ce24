// The transducer loss on an NVIDIA GPU, see `lattice.py` for the formulas and `loss_gpu.py` for the host's part.
//
// Nodes (t, u) of a row lie diagonal by diagonal, as (T_most + width - 1, width): those with the same t + u, which depend on the
// diagonal before alone, are next to each other. `frames` and `sizes` may be null: then all rows are full. A length or symbol
// that is out of range is never used as an index; `transducer_sums` reports its row.
typedef long long i64;
struct alignas(16) Steps{double blank,label;};  // log p of the two ways out of a node
struct Row{int T,U;bool wrong;};
#if KIND==3
typedef double real;
#define power exp
#define logarithm log
#define larger fmax
#else
typedef float real;
#define power expf
#define logarithm logf
#define larger fmaxf
#endif
enum Status{FINE=0,WRONG=1,LOST=2};

__device__ inline double nothing(){return -__longlong_as_double(0x7ff0000000000000LL);}

__device__ inline Row row_of(const i64*frames,const i64*sizes,int b,int T_most,int width){
  const i64 T=frames?frames[b]:T_most,U=sizes?sizes[b]:width-1;
  const bool wrong=T<0||T>T_most||U<0||U>=width;
  return {wrong?0:(int)T,wrong?0:(int)U,wrong};
}

__device__ inline bool is_symbol(i64 y,int symbols,int silent){return y>=0&&y<symbols&&y!=silent;}

// What a row's loss counts: 1, or its part of the mean over rows of the loss per symbol.
__device__ inline double weight(int mean,int rows,int U){return mean?1./((double)rows*max(U,1)):1.;}
