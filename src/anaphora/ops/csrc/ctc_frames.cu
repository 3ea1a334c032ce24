// A warp for each frame: log of the sum of e^z over the symbols.
extern "C" __global__ void ctc_frames(const elem*z,const i64*frames,const i64*sizes,real*total,
                                      int rows,int T_most,int U_most,int symbols,int silent,int mean,int normalized){
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const unsigned count=(unsigned)rows*T_most;
  for(unsigned n=blockIdx.x*warps+(threadIdx.x>>5);n<count;n+=gridDim.x*warps){
    const int t=n%T_most,b=n/T_most;
    if(t>=row_of(frames,sizes,b,T_most,U_most).T)continue;
    const elem*row=z+(i64)n*symbols;
    real most=(real)nothing();
    for(int k=lane;k<symbols;k+=32)most=larger(most,wide(row[k]));
    for(int o=16;o;o>>=1)most=larger(most,__shfl_xor_sync(~0u,most,o));
    real sum=0;
    for(int k=lane;k<symbols;k+=32)sum+=power(wide(row[k])-most);
    for(int o=16;o;o>>=1)sum+=__shfl_xor_sync(~0u,sum,o);
    if(lane==0)total[n]=most+logarithm(sum);
  }
}
