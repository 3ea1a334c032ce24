// A warp for each frame: p - gamma, or -gamma where the scores are log p themselves. The shares of equal symbols are added in the order of
// the target, so that the result is the same every time.
extern "C" __global__ void ctc_gradient(const elem*z,const i64*labels,const i64*frames,const i64*sizes,const real*total,
                                        const States*alpha,const States*beta,const double*log_of,const int*next,const real*upstream,
                                        elem*to,int rows,int T_most,int U_most,int symbols,int silent,int mean,int normalized,int each){
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const unsigned count=(unsigned)rows*T_most;
  for(unsigned n=blockIdx.x*warps+(threadIdx.x>>5);n<count;n+=gridDim.x*warps){
    const int t=n%T_most,b=n/T_most;
    const Row r=row_of(frames,sizes,b,T_most,U_most);
    const elem*row=z+(i64)n*symbols;
    elem*out=to+(i64)n*symbols;
    const double found=t<r.T?log_of[b]:nothing();
    if(found==nothing()){
      for(int k=lane;k<symbols;k+=32)out[k]=narrow(0);
      continue;
    }
    const States*a=alpha+(i64)n*(U_most+1),*e=beta+(i64)n*(U_most+1);
    const real g=(real)(upstream[each?b:0]*weight(mean,rows,r.U)),all=normalized?(real)0:total[n];
    real silence=0;
    for(int i=lane;i<=r.U;i+=32)silence+=power((real)(a[i].blank+e[i].blank-found));
    for(int o=16;o;o>>=1)silence+=__shfl_xor_sync(~0u,silence,o);
    for(int k=lane;k<symbols;k+=32){
      const real p=normalized?(real)0:power(wide(row[k])-all);
      out[k]=narrow(g*(k==silent?p-silence:p));
    }
    __syncwarp();
    for(int i=lane;i<r.U;i+=32){
      int link=next[(i64)b*U_most+i];
      if(!(link&FIRST))continue;
      real share=0;
      for(int j=i;;j=link&~FIRST,link=next[(i64)b*U_most+j]){
        share+=power((real)(a[j].symbol+e[j].symbol-found));
        if(!(link&~FIRST))break;
      }
      const int k=(int)labels[(i64)b*U_most+i];
      const real p=normalized?(real)0:power(wide(row[k])-all);
      out[k]=narrow(g*(p-share));
    }
    __syncwarp();
  }
}
