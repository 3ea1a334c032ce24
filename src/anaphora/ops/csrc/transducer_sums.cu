// One direction of a row with a thread for each u, which keeps its own sum in a register and hands the other to its neighbour. What the
// next diagonals need is fetched AHEAD of them. Returns the last sum of this thread.
#define AHEAD 4
__device__ inline double walk(bool back,int T,int U,int width,const Steps*steps,double*to){
  __shared__ double handed[2][1024];
  const int u=threadIdx.x,count=T+U;
  const i64 stride=back?-width:width;
  const i64 first=(back?(i64)(count-1)*width:0)+u;
  Steps fetched[AHEAD];
#pragma unroll
  for(int k=0;k<AHEAD;k++)if(u<=U&&k<count)fetched[k]=steps[first+k*stride];
  double own=nothing();  // what the blank brings from the node before
  for(int base=0;base<count;base+=AHEAD){
#pragma unroll
    for(int k=0;k<AHEAD;k++){
      const int step=base+k,now=step&1,before=1-now;
      if(step>=count)break;  // of all threads
      const int n=back?count-1-step:step,t=n-u;
      const Steps here=fetched[k];
      const i64 at=first+step*stride;
      if(u<=U&&step+AHEAD<count)fetched[k]=steps[at+AHEAD*stride];
      if(u<=U&&t>=0&&t<T){
        double found;
        if(!back){
          found=step?log_add(own,u>0?handed[before][u-1]:nothing()):0;
          own=found+here.blank;
          handed[now][u]=found+here.label;
        }else{
          found=step?log_add(own+here.blank,u<U?handed[before][u+1]+here.label:nothing()):here.blank;
          own=found;
          handed[now][u]=found;
        }
        to[at]=found;
      }
      __syncthreads();
    }
  }
  return own;
}

// The same where there are more nodes on a diagonal than threads: sums are read again from memory.
__device__ inline double walk_wide(bool back,int T,int U,int width,const Steps*steps,double*to){
  for(int step=0;step<T+U;step++){
    const int n=back?T+U-1-step:step;
    for(int u=max(0,n-(T-1))+(int)threadIdx.x;u<=min(U,n);u+=blockDim.x){
      const int t=n-u;
      const i64 at=(i64)n*width+u;
      double by_blank=nothing(),by_label=nothing();
      if(!back){
        if(t>0)by_blank=to[at-width]+steps[at-width].blank;
        if(u>0)by_label=to[at-width-1]+steps[at-width-1].label;
      }else{
        if(t+1<T)by_blank=to[at+width]+steps[at].blank;
        if(u<U)by_label=to[at+width+1]+steps[at].label;
      }
      to[at]=step?log_add(by_blank,by_label):back?steps[at].blank:0;
    }
    __syncthreads();
  }
  return to[0];
}

// Two blocks for each row, one for alpha and one for beta, which also writes the row's loss and status.
extern "C" __global__ void transducer_sums(const i64*labels,const i64*frames,const i64*sizes,const Steps*steps,
                                           double*alpha,double*beta,real*losses,real*status,
                                           int rows,int T_most,int width,int symbols,int silent,int mean){
  for(int task=blockIdx.x;task<2*rows;task+=gridDim.x){
    const int b=task>>1;
    const bool back=task&1;
    const Row r=row_of(frames,sizes,b,T_most,width-1);
    const i64 first=(i64)b*(T_most+width-1)*width;
    double*to=(back?beta:alpha)+first;
    bool wrong=r.wrong;
    if(back)for(int u=threadIdx.x;u<r.U;u+=blockDim.x)wrong|=!is_symbol(labels[(i64)b*(width-1)+u],symbols,silent);
    const bool refused=__syncthreads_or(wrong);
    double last=nothing();
    if(r.T&&width<=(int)blockDim.x)last=walk(back,r.T,r.U,width,steps+first,to);
    else if(r.T)last=walk_wide(back,r.T,r.U,width,steps+first,to);
    if(back&&threadIdx.x==0){
      if(!r.T)to[0]=nothing();
      const bool lost=last==nothing();
      losses[b]=lost?(real)0:(real)(-last*weight(mean,rows,r.U));
      status[b]=refused?WRONG:lost?LOST:FINE;
    }
    __syncthreads();
  }
}
