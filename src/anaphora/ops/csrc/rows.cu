// What the kernels of losses over alignments share: rows of other lengths, and sums of logarithms.
//
// `frames` and `sizes` may be null: then all rows are full. A length or symbol that is out of range is never used as an index; the
// kernel that sums reports its row.
typedef long long i64;
struct Row{int T,U;bool wrong;};  // frames and symbols of its target
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

__device__ inline Row row_of(const i64*frames,const i64*sizes,int b,int T_most,int U_most){
  const i64 T=frames?frames[b]:T_most,U=sizes?sizes[b]:U_most;
  const bool wrong=T<0||T>T_most||U<0||U>U_most;
  return {wrong?0:(int)T,wrong?0:(int)U,wrong};
}

__device__ inline bool is_symbol(i64 y,int symbols,int silent){return y>=0&&y<symbols&&y!=silent;}

// What a row's loss counts: 1, or its part of the mean over rows of the loss per symbol.
__device__ inline double weight(int mean,int rows,int U){return mean?1./((double)rows*max(U,1)):1.;}

// log(e^a + e^b). A correction between 0 and 0.7 is as exact as logits of 32 bits can be when it is a float itself.
__device__ inline double log_add(double a,double b){
  const bool above=a>b;
  const double high=above?a:b,low=above?b:a;
  if(low==nothing())return high;
#if KIND==3
  return high+log1p(exp(low-high));
#else
  return high+(double)log1pf(expf((float)(low-high)));
#endif
}

__device__ inline double log_add(double a,double b,double c){
  const double high=fmax(fmax(a,b),c);
  if(high==nothing())return a+b+c;  // NaN stays one
  return high+(double)logarithm(power((real)(a-high))+power((real)(b-high))+power((real)(c-high)));
}
