// A warp for each node: its softmax, of which log of the sum and the two steps are kept.
extern "C" __global__ void transducer_nodes(const elem*z,const i64*labels,const i64*frames,const i64*sizes,real*total,Steps*steps,
                                            int rows,int T_most,int width,int symbols,int silent,int mean){
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const unsigned nodes=(unsigned)rows*T_most*width;
  for(unsigned n=blockIdx.x*warps+(threadIdx.x>>5);n<nodes;n+=gridDim.x*warps){
    const unsigned u=n%width,bt=n/width,t=bt%T_most,b=bt/T_most;
    const Row r=row_of(frames,sizes,b,T_most,width-1);
    if(t>=(unsigned)r.T||u>(unsigned)r.U)continue;
    const elem*row=z+(i64)n*symbols;
    real most=(real)nothing();
    for(int k=lane;k<symbols;k+=32)most=larger(most,wide(row[k]));
    for(int o=16;o;o>>=1)most=larger(most,__shfl_xor_sync(~0u,most,o));
    real sum=0;
    for(int k=lane;k<symbols;k+=32)sum+=power(wide(row[k])-most);
    for(int o=16;o;o>>=1)sum+=__shfl_xor_sync(~0u,sum,o);
    if(lane)continue;
    const real all=most+logarithm(sum);
    total[n]=all;
    const i64 next=(int)u<r.U?labels[(i64)b*(width-1)+u]:-1;
    Steps&to=steps[((i64)b*(T_most+width-1)+t+u)*width+u];
    to.blank=(double)wide(row[silent])-(double)all;
    to.label=is_symbol(next,symbols,silent)?(double)wide(row[next])-(double)all:nothing();
  }
}
