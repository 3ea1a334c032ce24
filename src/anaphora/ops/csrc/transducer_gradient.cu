__device__ inline double share(double log_share){const double p=exp(log_share);return p==p?p:0;}  // NaN: -inf + inf, nothing passes there

// A warp for each node: gamma p - [k = blank] gamma^blank - [k = next] gamma^label.
extern "C" __global__ void transducer_gradient(const elem*z,const i64*labels,const i64*frames,const i64*sizes,const real*total,
                                               const Steps*steps,const double*alpha,const double*beta,const real*upstream,elem*to,
                                               int rows,int T_most,int width,int symbols,int silent,int mean,int each){
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const unsigned nodes=(unsigned)rows*T_most*width;
  for(unsigned n=blockIdx.x*warps+(threadIdx.x>>5);n<nodes;n+=gridDim.x*warps){
    const int u=n%width,bt=n/width,t=bt%T_most,b=bt/T_most;
    const Row r=row_of(frames,sizes,b,T_most,width-1);
    const elem*row=z+(i64)n*symbols;
    elem*out=to+(i64)n*symbols;
    const i64 first=(i64)b*(T_most+width-1)*width,at=first+(i64)(t+u)*width+u;
    const bool real_node=t<r.T&&u<=r.U;
    const double p=real_node?beta[first]:nothing();
    if(p==nothing()){
      for(int k=lane;k<symbols;k+=32)out[k]=narrow(0);
      continue;
    }
    const Steps here=steps[at];
    const double later=t+1<r.T?beta[at+width]:u==r.U?0:nothing();
    const double g=upstream[each?b:0]*weight(mean,rows,r.U),reached=alpha[at]-p;
    const real by_blank=(real)(g*share(reached+here.blank+later));
    const real by_label=u<r.U?(real)(g*share(reached+here.label+beta[at+width+1])):(real)0;
    const real visited=by_blank+by_label,all=total[n];
    const int next=u<r.U?(int)labels[(i64)b*(width-1)+u]:-1;
    for(int k=lane;k<symbols;k+=32){
      real v=visited==0?(real)0:power(wide(row[k])-all)*visited;
      if(k==silent)v-=by_blank;
      if(k==next)v-=by_label;
      out[k]=narrow(v);
    }
  }
}
